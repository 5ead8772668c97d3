"""`turnbridge serve`: checks the settings, listens, and runs the gateway until a signal stops it."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import structlog

from turnbridge.api.own_listener import ByPort, OwnListener
from turnbridge.bootstrap import Gateway, own_listeners, running_gateway
from turnbridge.cli.api_key import KEY_FILE, stored_key
from turnbridge.cli.console import EXIT_UNAVAILABLE, Banner, progress, refuse, shown_key, usable_settings, warn
from turnbridge.cli.listener import Address, Listener, address_of, listen, passed_listener, resolved
from turnbridge.cli.page_data import command_data
from turnbridge.cli.reload import has_terminal, reload
from turnbridge.cli.welcome import account_lines, is_interactive, offer_login
from turnbridge.logs.output import print_to
from turnbridge.logs.setup import conceal, configure_logging
from turnbridge.settings.accounts import login_command
from turnbridge.settings.fields import ON, Settings, unknown_settings
from turnbridge.web.server.connection_limits import MOST_CONNECTIONS, raise_descriptor_limit
from turnbridge.web.server.http_server import HttpServer, fastest_loop

log = structlog.get_logger(__name__)

# For keys that are reachable from other machines: 16 random letters and digits have 95 bits.
MIN_PUBLIC_KEY_LENGTH = 16


def serve(*, demo: bool, **chosen: object) -> None:
    """Run the gateway until a signal stops it; exit with a message if it cannot start. `chosen` are settings."""
    _reopen_closed_streams()
    settings = usable_settings(**chosen)
    for warning in unknown_settings(os.environ):
        warn(warning)
    if settings.api_key is not None and not settings.api_key.replace(",", " ").strip():
        refuse(
            "PROXY_API_KEY contains no key. Set one, or several separated by commas; if it is unset, one is generated."
        )
    passed = passed_listener()
    address = resolved(settings.host, settings.port) if passed is None else address_of(passed)
    if not address.is_loopback:
        _check_keys(settings, settings.host)
    if settings.log_proto and settings.trace_path.is_symlink():
        refuse(
            f"Refusing to write the wire trace to {settings.trace_path}: it is a symbolic link. Choose a plain file."
        )
    _check_data_dir(settings.data_dir)
    demo = demo or (is_interactive() and offer_login(settings))
    configure_logging(settings.log_level, settings.log_format)
    raise_descriptor_limit()
    listener = passed or listen(address)
    beside = address_of(listener)
    others = [(own, _listen_beside(settings, own, where, beside)) for own, where in own_listeners(settings)]
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(_serve(settings, chosen, listener, others, demo=demo))


def _reopen_closed_streams() -> None:
    """Open the standard streams that the parent has closed: the next file or socket would get their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - It stays open.


def _check_keys(settings: Settings, host: str) -> None:
    """Refuse to listen beyond loopback with a generated key, or with one that is short enough to guess."""
    if settings.api_key is None:
        refuse(f"Refusing to listen on {host} with a generated key. Set PROXY_API_KEY, or listen on 127.0.0.1.")
    secrets = {
        "PROXY_API_KEY": (settings.api_key or "").split(","),
        "PROXY_METRICS_TOKEN": [settings.metrics_token or ""],
    }
    for name, values in secrets.items():
        if any(0 < len(value.strip()) < MIN_PUBLIC_KEY_LENGTH for value in values):
            refuse(
                f"Refusing to listen on {host}: {name} has fewer than {MIN_PUBLIC_KEY_LENGTH} characters, "
                "which others could guess. Choose a longer one, for example by `openssl rand -hex 16`."
            )


def _check_data_dir(directory: Path) -> None:
    """Refuse to start if the path cannot be a directory; other failures, such as a full disk, may pass."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        refuse(
            f"Cannot use the data directory {directory}: {error.strerror}. Choose another directory in PROXY_DATA_DIR."
        )
    except OSError as error:
        warn(f"cannot create {directory}: {error.strerror}")


def _generated_key(directory: Path) -> str:
    try:
        return stored_key(directory)
    except OSError as error:
        message = f"Cannot store a key in {directory}: {error.strerror}. Free some space, or set PROXY_API_KEY."
        refuse(message, status=EXIT_UNAVAILABLE)


async def _serve(
    settings: Settings,
    chosen: Mapping[str, object],
    listener: Listener,
    others: list[tuple[OwnListener, Listener]],
    *,
    demo: bool,
) -> None:
    api_key = settings.api_key or _generated_key(settings.data_dir)
    conceal((*api_key.split(","), settings.metrics_token or ""))
    address = address_of(listener)
    places = {own.name: address_of(listening) for own, listening in others}
    urls = {name: _url_of(place) for name, place in places.items()}
    async with contextlib.AsyncExitStack() as stack:
        provider = await stack.enter_async_context(_demo()) if demo else None
        gateway = await stack.enter_async_context(
            running_gateway(
                settings,
                api_key=api_key,
                provider=provider,
                commands=command_data(settings, api_key, port=address.port, others=urls),
            )
        )
        banner = _banner(settings, gateway, address, api_key, demo=demo)
        # Twice the requests that can be running or queued: as many connections may be idle.
        wanted = 2 * (settings.max_turns + settings.queue_max)
        by_port = {place.port: gateway.others[name] for name, place in places.items()}
        app = ByPort(gateway.app, by_port) if by_port else gateway.app
        server = HttpServer(app, most_connections=max(MOST_CONNECTIONS, wanted))
        stack.enter_context(_drain_on_signals(gateway, server, settings.drain_s, hands_over=listener.passed))
        stack.enter_context(_reload_on_signal(gateway, settings, chosen))
        _say(banner.opening())
        for own, where in own_listeners(settings):
            _say(_other_banner(own, places[own.name], chosen=where != ON))
        first_steps = asyncio.create_task(_say_first_steps(banner, gateway, settings))
        stack.callback(first_steps.cancel)
        _tune_garbage_collector()
        _forget_generators()
        await server.serve(sockets=[listener.socket, *(other.socket for _, other in others)])


@contextlib.asynccontextmanager
async def _demo() -> AsyncIterator[str]:
    """Run the model of the demo; yield its base URL."""
    # Any other start need not wait for its server.
    from turnbridge.scripted_model.persona import respond  # noqa: PLC0415
    from turnbridge.scripted_model.websocket import WebSocketModel  # noqa: PLC0415

    async with WebSocketModel(respond) as model:
        yield model.websocket_url


def _banner(settings: Settings, gateway: Gateway, address: Address, api_key: str, *, demo: bool) -> Banner:
    file = settings.data_dir / KEY_FILE
    # As a generated key, the code is for a terminal only: a service's log would keep it.
    code = gateway.page.new_code() if gateway.page is not None and sys.stdout.isatty() else None
    return Banner(
        host=address.host,
        port=address.port,
        key=shown_key(api_key, chosen=settings.api_key is not None, file=file),
        key_file=None if settings.api_key else file,
        demo=demo,
        code=code,
        has_page=gateway.page is not None,
    )


def _say(text: str) -> None:
    """Print a text; a closed or full standard output does not keep the gateway from serving."""
    if not print_to(sys.stdout, text):
        log.warning("greeting_not_printed")


def _url_of(address: Address) -> str:
    return f"http://{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"


def _other_banner(own: OwnListener, address: Address, *, chosen: bool) -> str:
    first = own.ports[0]
    moved = "" if chosen or address.port == first else f" Port {first} is taken, probably by {own.rival}."
    return f"  {own.title:<9} {_url_of(address)} ({own.note}).{moved}\n\n"


async def _say_first_steps(banner: Banner, gateway: Gateway, settings: Settings) -> None:
    """Print the examples once Codex has started; if it does not start, the log says why."""
    with progress("Starting Codex ..."):
        ready = (await gateway.pool.first_readiness()).ready
    # A service's log is no place for the address of a person.
    if ready and sys.stdout.isatty() and not banner.demo:
        _say(await account_lines(settings))
    _say(banner.first_steps(login_command=None if ready else login_command()))


def _tune_garbage_collector() -> None:
    """Exclude the objects of the start from garbage collection: scanning them took 5 % of a request's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _forget_generators() -> None:
    """Keep the event loop from keeping a list of all async generators, to close those that are open at its end.

    Here whoever opens one closes it. A turn opens four, and the list takes 2 % of its time and 0.6 KB of its memory.
    One that is forgotten all the same is still closed when it is collected.
    """
    sys.set_asyncgen_hooks(firstiter=None)


@contextlib.contextmanager
def _drain_on_signals(gateway: Gateway, server: HttpServer, drain_s: float, *, hands_over: bool) -> Iterator[None]:
    """Shut down gracefully at the first signal, and at once at the second.

    A gateway that hands over refuses nobody: new connections wait for its successor, or are with it already.

    A closing terminal may send SIGHUP twice, so a second SIGHUP is ignored.
    """
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    async def drain() -> None:
        if not hands_over:
            await gateway.drain(drain_s)
        else:
            server.stop_accepting()
            if not await gateway.admission.handed_over(drain_s):
                await gateway.drain(0)
        server.stop()

    def stop() -> None:
        if draining:
            server.stop(at_once=True)
        else:
            draining.append(loop.create_task(drain()))

    def hang_up() -> None:
        if not draining:
            stop()

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop}
    if _hears_hang_up() and has_terminal():
        handlers[signal.SIGHUP] = hang_up
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _reload_on_signal(gateway: Gateway, settings: Settings, chosen: Mapping[str, object]) -> Iterator[None]:
    """Reload at SIGHUP where no terminal sends it: a service manager, or a script."""
    if not _hears_hang_up() or has_terminal():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload, gateway, settings, chosen)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _hears_hang_up() -> bool:
    """Tell whether SIGHUP is not ignored, as it is under `nohup`."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def _listen_beside(settings: Settings, own: OwnListener, chosen: str, beside: Address) -> Listener:
    """Return an API's own listener; another port than the first is tried only if the user has chosen none."""
    if chosen == ON:
        for port in own.ports:
            with contextlib.suppress(OSError):
                return Listener(socket.create_server((own.host, port)))
        refuse(f"The ports {own.ports[0]} to {own.ports[-1]} are taken. Choose an address in {own.setting}.")
    host, _, port_text = chosen.rpartition(":")
    address = resolved(host.strip("[]"), int(port_text))
    if not address.is_loopback:
        _check_keys(settings, host)
    # Requests are told apart by the port that they come to.
    if address.port == beside.port:
        refuse(f"{own.setting} and PORT are both {address.port}. Choose another port for one of them.")
    return listen(address)
