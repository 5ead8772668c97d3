"""Codes and sessions: how long they last, and what a request needs."""

import pytest

from turnbridge.page.sessions import CODE_LIFE_S, MOST_SESSIONS, SESSION_LIFE_S, Opened, Sessions, Visitor
from turnbridge.turn.clients import Client
from turnbridge.turn.errors import Forbidden, InvalidApiKey
from turnbridge.web.http import PAGE_TOKEN

pytestmark = pytest.mark.promise("page.session")

SOMEONE = Client(id="client_1", name="someone")
VISITOR = Visitor(client=SOMEONE, owner=False)


class Hall:
    """Sessions with a clock that stands still, and clients that may lose their keys."""

    def __init__(self) -> None:
        self.now = 0.0
        self.client: Client | None = SOMEONE
        self.sessions = Sessions(current=lambda _: self.client, clock=lambda: self.now)


def scope(opened: Opened, **headers: str) -> dict[str, object]:
    given = {"cookie": f"a=b; turnbridge_8080={opened.cookie}", PAGE_TOKEN.decode(): opened.token}
    sent = {**given, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {"server": ("127.0.0.1", 8080), "headers": [(name.encode(), value.encode()) for name, value in sent.items()]}


@pytest.mark.promise("page.code")
def test_a_code_opens_one_session_within_an_hour() -> None:
    hall = Hall()
    first, second = hall.sessions.new_code(), hall.sessions.new_code()
    assert [hall.sessions.redeem(code) for code in (first, first, "guess", "")] == [True, False, False, False]
    hall.now = CODE_LIFE_S
    assert not hall.sessions.redeem(second)


def test_a_request_needs_cookie_and_token_of_the_same_session() -> None:
    hall = Hall()
    one, other = hall.sessions.open(VISITOR), hall.sessions.open(VISITOR)
    assert hall.sessions.visitor(scope(one)) == VISITOR
    for given in (Opened(one.cookie, other.token), Opened(one.cookie, ""), Opened("guess", one.token)):
        with pytest.raises(InvalidApiKey):
            hall.sessions.visitor(scope(given))
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor({**scope(one), "server": ("127.0.0.1", 8081)})


@pytest.mark.parametrize("site", ["same-site", "cross-site", "none"])
def test_another_page_cannot_use_a_session(site: str) -> None:
    hall = Hall()
    opened = hall.sessions.open(VISITOR)
    with pytest.raises(Forbidden):
        hall.sessions.visitor(scope(opened, sec_fetch_site=site))
    assert hall.sessions.visitor(scope(opened, sec_fetch_site="same-origin")) == VISITOR


def test_a_session_ends_with_its_time_or_its_key() -> None:
    hall = Hall()
    first, second = hall.sessions.open(VISITOR), hall.sessions.open(VISITOR)
    hall.client = None
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor(scope(first))
    hall.client = SOMEONE
    hall.sessions.end_of(frozenset({"another"}))
    assert hall.sessions.visitor(scope(second)) == VISITOR
    hall.sessions.end_of(frozenset({SOMEONE.id}))
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor(scope(second))
    third = hall.sessions.open(VISITOR)
    hall.now = SESSION_LIFE_S
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor(scope(third))


def test_sessions_are_bounded() -> None:
    hall = Hall()
    oldest, *_, newest = [hall.sessions.open(VISITOR) for _ in range(MOST_SESSIONS + 1)]
    assert hall.sessions.visitor(scope(newest)) == VISITOR
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor(scope(oldest))


def test_a_broken_cookie_header_is_no_session() -> None:
    hall = Hall()
    opened = hall.sessions.open(VISITOR)
    with pytest.raises(InvalidApiKey):
        hall.sessions.visitor(scope(opened, cookie='turnbridge_8080="; ;=\x00'))
