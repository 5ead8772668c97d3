"""Which MCP servers a setting allows."""

import pytest

from turnbridge.turn.mcp_hosts import Origin, ServerHosts, origin_of, parse_hosts


@pytest.mark.parametrize(
    ("setting", "hosts"),
    [
        ("off", ServerHosts()),
        ("public", ServerHosts(access="public")),
        (
            "hosts:A.example, b.example:8443,http://10.0.0.5:8000",
            ServerHosts(
                access="hosts",
                origins=frozenset(
                    {
                        Origin("https", "a.example", 443),
                        Origin("https", "b.example", 8443),
                        Origin("http", "10.0.0.5", 8000),
                    }
                ),
            ),
        ),
    ],
)
def test_a_setting_says_which_servers_are_allowed(setting: str, hosts: ServerHosts) -> None:
    assert parse_hosts(setting) == hosts


@pytest.mark.parametrize("setting", ["on", "hosts:", "hosts: ,", "hosts:a b", "hosts:ftp://a.example", "Public"])
def test_a_setting_that_makes_no_sense_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_hosts(setting)


@pytest.mark.parametrize(
    ("setting", "url", "allowed"),
    [
        ("off", "https://a.example/mcp", False),
        ("public", "https://a.example/mcp", True),
        ("public", "https://a.example:443/mcp", True),
        ("public", "https://a.example:444/mcp", False),
        ("public", "http://a.example/mcp", False),
        ("hosts:a.example", "https://A.EXAMPLE/mcp", True),
        ("hosts:a.example", "https://a.example:444/mcp", False),
        ("hosts:a.example", "http://a.example/mcp", False),
        ("hosts:a.example", "https://b.a.example/mcp", False),
        ("hosts:a.example", "https://a.example.b/mcp", False),
        ("hosts:http://[::1]:8000", "http://[::1]:8000/mcp", True),
    ],
)
def test_a_server_is_allowed_by_its_origin(setting: str, url: str, allowed: bool) -> None:
    assert parse_hosts(setting).allows(origin_of(url)) is allowed


@pytest.mark.parametrize(
    "url",
    [
        *("", "a.example", "ftp://a.example", "https://", "https://a b", "https://a\n.example", "https://é.example"),
        *("https://user@a.example", "https://a.example#b", "https://a.example:99999", f"https://a/{'x' * 3000}"),
        "https://a.example\\@127.0.0.1/",
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        origin_of(url)
