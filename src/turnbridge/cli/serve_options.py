"""The options of `turnbridge serve`, apart from the server: help and completion need not import it."""

import click


@click.command()
@click.option("--host", help="Address to listen on (PROXY_HOST).")
@click.option("--port", type=int, help="Port to listen on (PORT).")
@click.option("--demo", is_flag=True, help="Answer from a scripted model behind the real Codex: no account needed.")
@click.option(
    "--ollama",
    is_flag=True,
    help="Serve Ollama's clients too, on 127.0.0.1:11434 or the next free port (PROXY_OLLAMA).",
)
@click.pass_context
def serve(context: click.Context, *, host: str | None, port: int | None, demo: bool, ollama: bool) -> None:
    """Run the gateway.

    On a terminal without a login, it first offers to log in, or the demo.
    """
    from turnbridge.cli.serve import run_gateway  # noqa: PLC0415 - It takes 0.4 s.

    run_gateway(context, host=host, port=port, demo=demo, ollama=ollama)
