"""The variables that Codex gets: the user's proxies, and loopback without them."""

from pathlib import Path

import pytest

from turnbridge.codex.process.home import codex_environment, hosts_without_proxy

LOOPBACK = "127.0.0.1,localhost,::1"


@pytest.mark.promise("start.proxy")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, LOOPBACK),
        ({"NO_PROXY": ""}, LOOPBACK),
        ({"NO_PROXY": "intern.test, 10.0.0.0/8"}, f"intern.test,10.0.0.0/8,{LOOPBACK}"),
        ({"no_proxy": "intern.test"}, f"intern.test,{LOOPBACK}"),
        ({"NO_PROXY": "a.test", "no_proxy": "b.test,a.test"}, f"a.test,b.test,{LOOPBACK}"),
        ({"NO_PROXY": "localhost"}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "*"}, f"*,{LOOPBACK}"),
    ],
)
def test_loopback_is_reached_without_a_proxy_besides_what_the_user_lists(given: dict[str, str], expected: str) -> None:
    assert hosts_without_proxy(given) == expected


def test_both_spellings_have_the_same_hosts_and_proxies_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "intern.test")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    environment = codex_environment(tmp_path)
    assert environment["NO_PROXY"] == environment["no_proxy"] == f"intern.test,{LOOPBACK}"
    assert environment["HTTPS_PROXY"] == "http://proxy.test:3128"


def test_the_databases_of_codex_stay_in_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_SQLITE_HOME", "/elsewhere")
    environment = codex_environment(tmp_path)
    assert environment["CODEX_HOME"] == environment["CODEX_SQLITE_HOME"] == str(tmp_path)
