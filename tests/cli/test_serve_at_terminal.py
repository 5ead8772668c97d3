"""`turnbridge serve` for a person at a terminal: the offer of a login, the banner, and a line for each request."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.terminal import COLOURS, Terminal, at_terminal
from turnbridge.cli.main import EXIT_INTERRUPTED

pytestmark = [pytest.mark.real]

COLUMNS = 80


def asked(terminal: Terminal, port: str, path: str) -> int:
    """Return the status of a request with the key that is shown."""
    key = next(line.split()[2] for line in terminal.shown.splitlines() if line.startswith("  API key"))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {key}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.mark.promise("commands.serve.offer", "commands.serve.lines")
def test_the_demo_can_be_chosen_and_each_request_is_a_line(started_before: Path) -> None:
    port = str(free_port())
    with at_terminal(started_before, "serve", PORT=port) as terminal:
        terminal.read_until("Your choice [1]: ")
        terminal.type("4\n")
        terminal.read_until(f"The settings of your client: PORT={port} ")
        assert "(demo: a scripted model, no account)" in terminal.shown
        assert f"  Key file  {started_before / 'data' / 'api-key'}\n" in terminal.shown
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models", "/v1/nonsense"):
            asked(terminal, port, path)
        terminal.read_until("not_found")
        terminal.type("\x03")
        assert terminal.read_to_end() == 0
    lines = [COLOURS.sub("", line) for line in terminal.shown.partition("The settings of")[2].splitlines()]
    requests = [line for line in lines if " GET " in line]
    assert [line.split()[1:2] + line.split()[4:] for line in requests] == [
        ["200", "GET", "/v1/models"],
        ["404", "GET", "other", "not_found"],
    ], "no probe is shown"
    assert max(map(len, requests)) <= COLUMNS


@pytest.mark.promise("commands.serve.offer")
def test_an_api_key_can_be_given_and_the_banner_says_who_is_logged_in(started_before: Path) -> None:
    with at_terminal(started_before, "serve", PORT=str(free_port()), NO_COLOR="1") as terminal:
        terminal.read_until("Your choice [1]: ")
        terminal.type("7\n")
        terminal.read_until("7 is not in the range")
        terminal.type("3\n")
        terminal.read_until("API key: ")
        terminal.type("sk-for-this-test-only\n")
        terminal.read_until("Try it:")
        terminal.type("\x03")
        assert terminal.read_to_end() == 0
    assert "\n  Account   OpenAI API key\n" in terminal.shown
    assert "sk-for-this-test" not in terminal.shown
    assert "\x1b[" not in terminal.shown, "NO_COLOR is honoured"


@pytest.mark.promise("commands.serve.offer")
def test_ctrl_c_at_the_offer_ends_it(started_before: Path) -> None:
    with at_terminal(started_before, "serve", PORT=str(free_port())) as terminal:
        terminal.read_until("Your choice [1]: ")
        assert terminal.interrupt() == EXIT_INTERRUPTED
    assert "Traceback" not in terminal.shown
    assert "listens on" not in terminal.shown


@pytest.mark.promise("commands.serve.offer")
def test_a_configured_provider_needs_no_offer(started_before: Path) -> None:
    home = started_before / ".codex"
    home.mkdir()
    provider = '[model_providers.local]\nname = "local"\nbase_url = "http://127.0.0.1:9/v1"\n'
    (home / "config.toml").write_text(f'model_provider = "local"\n{provider}')
    with at_terminal(started_before, "serve", PORT=str(free_port())) as terminal:
        terminal.read_until("API key")
        terminal.type("\x03")
        terminal.read_to_end()
    assert "Your choice" not in terminal.shown
