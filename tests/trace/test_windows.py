"""Long texts are searched in windows, and what is found is what one search of the whole would find."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.logs.redaction import REDACTED
from turnbridge.trace import redaction as windows
from turnbridge.trace.redaction import URL_PASSWORD, Redaction

OWN_KEY = "my own key"
SECRETS = (
    OWN_KEY,
    "sk-0123456789abcdef",
    f"sk-{'a' * 4000}",
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    f"eyJhbGciOiJSUzI1NiJ9.eyJ{'b' * 4000}.{'c' * 4000}",
    "Bearer 0123456789abcdef",
    '"password": "hunter2"',
    '"password" : -12.5e3',
    r"\"api_key\": \"hunter2\"",
    f'"secret": "{"hunter2 " * 500}"',
    "https://me:hunter2@example.test",
    "?access_token=hunter2&b=c",
)
BEGINNINGS = (
    '"token": "',
    "sk-",
    "eyJhbGciOiJSUzI1NiJ9.",
    "bearer ",
    "://a:",
    "?secret",
    '"',
    "\\",
    "@",
    "&",
    "=",
    "1",
)
WORDS = st.integers(0, 400).map(lambda count: " word" * count)
TEXTS = st.lists(st.sampled_from(SECRETS) | st.sampled_from(BEGINNINGS) | WORDS, max_size=30).map("".join)


@contextmanager
def small_windows() -> Iterator[None]:
    """Let a text have many windows; none of the beginnings above needs to see more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", 2000)
        patch.setattr(windows, "LOOKAHEAD", 1000)
        yield


def in_one_go(redaction: Redaction, text: str) -> str:
    text = URL_PASSWORD.sub(rf"\1{REDACTED}", text)
    return redaction._keys.pattern.sub(lambda found: (found["field"] or found["query"] or "") + REDACTED, text)


@given(TEXTS)
def test_windows_find_what_one_search_finds(text: str) -> None:
    redaction = Redaction(keys=[OWN_KEY])
    with small_windows():
        assert redaction.text(text) == in_one_go(redaction, text)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_wherever_a_window_ends(secret: str) -> None:
    redaction = Redaction(keys=[OWN_KEY])
    with small_windows():
        for before in (*range(970, 1010), *range(1970, 2010)):
            text = f"{'-' * before} {secret} {'-' * 3000}"
            assert redaction.text(text) == in_one_go(redaction, text)
            assert "hunter2" not in redaction.text(text)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_at_the_true_ends_of_windows(secret: str) -> None:
    redaction = Redaction(keys=[OWN_KEY])
    step = windows.WINDOW - windows.LOOKAHEAD
    for end in (step, windows.WINDOW):
        for before in range(end - len(secret) - 2, end + 1, max(1, len(secret) // 5)):
            text = f"{'-' * before} {secret} {'-' * windows.WINDOW}"
            assert redaction.text(text) == in_one_go(redaction, text)


@pytest.mark.parametrize("beginning", ['"token": "', "sk-", "?token="])
def test_after_a_secret_that_does_not_end_nothing_is_shown(beginning: str) -> None:
    text = f"before {beginning}{'x' * (windows.LONGEST_MATCH + 1)}"
    shown = Redaction().text(f'{text}", " after')
    assert shown == f"before {beginning.removeprefix('sk-')}{REDACTED}"


@given(st.binary(max_size=100), st.integers(1, 7))
def test_bytes_are_decoded_in_pieces_as_in_one(data: bytes, window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", window)
        assert windows.decoded(data) == data.decode(errors="replace")
