"""The commands with their arguments and options, apart from what they do: that is imported only when it is run.

So help and completion take the time that Python and click take, however much a command needs.
"""

import functools
import gc
import importlib
from collections.abc import Callable
from pathlib import Path

import click

# The default model of the user's Codex configuration.
DEFAULT_MODEL = "codex-5"
BUNDLED = "bundled"
SHELLS = ("bash", "zsh", "fish")

PATH = click.Path(path_type=Path)
JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
DEMO = click.option(
    "--demo", is_flag=True, help="Let a scripted model answer behind the real Codex: no account needed."
)


def account_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that names a Codex account; `what` is its help."""
    return click.option("--account", metavar="NAME", help=what)


def done_by(module: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """Let the function of the same name in a module do what a declared command says."""

    def deferred(declared: Callable[[], None]) -> Callable[..., None]:
        @functools.wraps(declared)
        def run(**chosen: object) -> None:
            # What is imported stays: to search it for garbage meanwhile takes a tenth of the time.
            gc.disable()
            implementation = importlib.import_module(f"turnbridge.{module}")
            gc.enable()
            getattr(implementation, declared.__name__)(**chosen)

        return run

    return deferred


@click.command()
@click.argument("words", nargs=-1, metavar="[QUESTION]...")
@click.option("--model", default=DEFAULT_MODEL, help="A model, as clients name it.")
@DEMO
@click.option("--json", "as_json", is_flag=True, help="Print the whole response as a JSON object.")
@done_by("cli.ask")
def ask() -> None:
    """Ask the model, and print its answer as it comes.

    What is piped into the command is appended to the question. It goes through the running gateway, or if there is
    none, through one that ends with the command. Nothing is stored.
    """


@click.command()
@click.option("--demo", is_flag=True, help="List the models that the demo offers: no account needed.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as a JSON object, as /v1/models has it.")
@done_by("cli.ask")
def models() -> None:
    """List the models that clients can name."""


@click.group(invoke_without_command=True)
@click.pass_context
def codex(context: click.Context) -> None:
    """Show which Codex is used; `use` chooses another version."""
    if context.invoked_subcommand is None:
        done_by("cli.codex")(show_codex)()


def show_codex() -> None:
    """Show which Codex is used."""


@codex.command()
@click.argument("version", metavar=f"VERSION|{BUNDLED}")
@done_by("cli.codex")
def use() -> None:
    """Install a version of Codex from PyPI or npm, check it, and use it from the next start of the gateway on.

    `bundled` is the version that is installed with Turnbridge.
    """


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@done_by("cli.completion")
def completion() -> None:
    """Print the script for the completion of a shell: bash, zsh or fish.

    \b
    turnbridge completion bash > ~/.local/share/bash-completion/completions/turnbridge
    echo 'source <(turnbridge completion zsh)' >> ~/.zshrc
    turnbridge completion fish > ~/.config/fish/completions/turnbridge.fish
    """


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--changed", is_flag=True, help="Show only settings that are not the default.")
@JSON
@done_by("cli.config")
def config() -> None:
    """Show the effective settings, and where each comes from: default, environment or file. Secrets are masked."""


def _clients(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """Return the clients whose names begin so, for the completion of a shell."""
    from turnbridge.cli.clients.table import BY_NAME  # noqa: PLC0415 - Only completion needs it here.

    return [name for name in BY_NAME if name.startswith(begun)]


@click.command()
@click.argument("client", required=False, shell_complete=_clients)
@click.option("--model", help="A model, as clients name it. Default: codex-5, the default of your Codex.")
@click.option("--key-file", type=PATH, help="A file with the key to use, as `keys create NAME` prints it.")
@click.option("--own-key", is_flag=True, help="Use a key that is named after the client; it is made if there is none.")
@click.option("--write", is_flag=True, help="Write the client's settings file, and keep a backup of it.")
@click.option("--test", is_flag=True, help="Send a call as the client does, through the running gateway.")
@click.option("--undo", is_flag=True, help="Restore the settings file as it was before --write.")
@JSON
@done_by("cli.connect")
def connect() -> None:
    """Show or write the settings of a client, and try them; without a client, list them.

    The key is shown on a terminal only. It is written only to files that nobody else can read.
    """


@click.command()
@click.option("--turn", is_flag=True, help="Also ask the model something, which uses the plan or costs money.")
@click.option("--model", default=DEFAULT_MODEL, help="The model that --turn asks.")
@JSON
@done_by("cli.doctor")
def doctor() -> None:
    """Check everything that a gateway needs, and say how to correct what is wrong.

    The exit status is 1 if something is wrong; a warning is not.
    """


@click.command()
@click.option("--device", is_flag=True, help="Show a code to enter in a browser on any device: for ssh and containers.")
@click.option("--api-key", is_flag=True, help="Read an OpenAI API key from standard input, or ask for it.")
@click.option(
    "--access-token", is_flag=True, help="Read an access token of ChatGPT from standard input, or ask for it."
)
@account_option("Log in to this account, for the keys that are made for it; it is made if there is none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@done_by("cli.account")
def login() -> None:
    """Log in to ChatGPT in a browser, by a device code or an access token, or to OpenAI with an API key.

    Codex itself logs in and keeps the login, in your Codex home. A running gateway uses it without a restart.
    """


@click.command()
@account_option("Log out of this account.")
@JSON
@done_by("cli.account")
def logout() -> None:
    """Log out: revoke the login, and remove it from your Codex home."""


@click.command()
@account_option("Show this account.")
@JSON
@done_by("cli.account")
def whoami() -> None:
    """Show who is logged in, and how much of the plan is used.

    The exit status is 1 if nobody is logged in and the provider needs it.
    """


@click.command()
@click.option("--codex-bin", type=PATH, help="The `codex` program (CODEX_BIN).")
@click.option("--prompt", default="Say hello in five words.", help="What to ask the model.")
@click.option("--raw", is_flag=True, help="Show every message as a whole.")
@DEMO
@done_by("diagnostics.probe")
def probe() -> None:
    """Run one turn with a Codex binary, and print every message, its time, and whether it matches the schema.

    In a pipe each message is a line of JSON, and the verdict the last one. The exit status is 1 if something failed.
    """


@click.command()
@click.option(
    "--codex-bin", type=PATH, help="The `codex` program (CODEX_BIN). Default: the one installed with Turnbridge."
)
@click.option(
    "--diff",
    type=(PATH, PATH),
    metavar="BIN_A BIN_B",
    help="Tell what changed from one program to another that concerns us.",
)
@done_by("diagnostics.schema")
def schema() -> None:
    """Print the protocol as a Codex binary describes it, or what changed; exit status 1 if something did."""


@click.command()
@click.option("--host", "PROXY_HOST", help="Address to listen on (PROXY_HOST).")
@click.option("--port", "PORT", type=int, help="Port to listen on (PORT).")
@click.option("--demo", is_flag=True, help="Answer from a scripted model behind the real Codex: no account needed.")
@click.option(
    "--ollama",
    "PROXY_OLLAMA",
    flag_value="on",
    help="Serve Ollama's clients too, on 127.0.0.1:11434 or the next free port (PROXY_OLLAMA).",
)
@done_by("cli.serve")
def serve() -> None:
    """Run the gateway.

    On a terminal without a login, it first offers to log in, or the demo.
    """


@click.group()
def service() -> None:
    """Run the gateway as a service of this user: systemd on Linux, launchd on macOS."""


@service.command()
@click.option("--allow-root", is_flag=True, help="Install it for root, which it does not need.")
@JSON
@done_by("cli.service")
def install() -> None:
    """Write the service, start it, and start it again at each login.

    It keeps the settings that are in the environment now, except for secrets: these belong into the settings file.
    """


@service.command("status")
@JSON
@done_by("cli.service")
def service_status() -> None:
    """Show whether the service is installed and runs; the exit status is 1 if it does not run."""


@service.command()
@JSON
@done_by("cli.service")
def remove() -> None:
    """Stop the service and delete its file; data, keys and the login stay."""


@click.command()
@JSON
@done_by("cli.status")
def status() -> None:
    """Show the gateway, the account, and what to do next: as `turnbridge` without a command."""


@click.command()
@click.argument("request_id", required=False, help="The `x-request-id` of its answer.")
@click.option("--last", is_flag=True, help="Show the last request that asked a model.")
@click.option("--list", "listed", is_flag=True, help="List the latest requests instead.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="The file of the trace (PROTO_LOG_PATH).")
@click.option("--full", is_flag=True, help="Every delta by itself, and payloads as a whole.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
@click.option("--view", "as_view", is_flag=True, help="Print what the page draws of it as one JSON object.")
@done_by("diagnostics.trace")
def trace() -> None:
    """Show one request as a timeline across both wires, from the trace that PROXY_LOG_PROTO=true writes."""
