"""What a payload looks like in the trace, and what never stands in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.logs.redaction import REDACTED
from turnbridge.trace.redaction import LONGEST_NAME, LOOKAHEAD, SMALL_BYTES, Payload, Redaction
from turnbridge.turn.items import Json

OWN_KEY = "my own key"


def shown(payload: Payload) -> Any:
    return json.loads(bytes(payload.raw))


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"authorization": "Basic YTpi"}, {"authorization": REDACTED}),
        ({"x-api-key": "k", "Api-Key": "k"}, {"x-api-key": REDACTED, "Api-Key": REDACTED}),
        ({"cookie": "a=b", "set-cookie": "c=d"}, {"cookie": REDACTED, "set-cookie": REDACTED}),
        ({"access_token": "t", "refreshToken": "t"}, {"access_token": REDACTED, "refreshToken": REDACTED}),
        ({"a": [{"b": {"client_secret": "s"}}]}, {"a": [{"b": {"client_secret": REDACTED}}]}),
        ({"credentials": {"user": "u", "on": True}}, {"credentials": {"user": REDACTED, "on": True}}),
        ({"password": 12345678, "pins": {"secret": [0.5]}}, {"password": REDACTED, "pins": {"secret": [REDACTED]}}),
        ({"api_keys": ["a", "b"]}, {"api_keys": [REDACTED, REDACTED]}),
        (
            {"type": "mcp", "headers": {"x": "s"}, "server_url": "https://a.test/s", "server_label": "a"},
            {"type": "mcp", "headers": {"x": REDACTED}, "server_url": REDACTED, "server_label": "a"},
        ),
        ({"headers": {"x": "s"}}, {"headers": {"x": "s"}}),
        ("use sk-proj-abcDEF0123456789_-x now", f"use {REDACTED} now"),
        (f"logged in with {JWT}.", f"logged in with {REDACTED}."),
        ("Authorization: Bearer 0123456789abcdef", f"Authorization: Bearer {REDACTED}"),
        ('{"city": "Rome", "api_key": "abc"}', f'{{"city":"Rome","api_key":"{REDACTED}"}}'),
        ('in a string: \\"password\\": \\"abc\\"', f'in a string: \\"password\\": \\"{REDACTED}\\"'),
        ('in a text: "password": "a\\"b", "c": 1', f'in a text: "password": "{REDACTED}", "c": 1'),
        (r"two deep: \"password\": \"a\\\"b\", c", rf"two deep: \"password\": \"{REDACTED}\", c"),
        ('cut off: {"password": "a\\"b', f'cut off: {{"password": "{REDACTED}'),
        ('a number: "password": -12.5e3, "c": 1', f'a number: "password": {REDACTED}, "c": 1'),
        ("https://example.test/?a=1&access_token=abc&b=2", f"https://example.test/?a=1&access_token={REDACTED}&b=2"),
        ("https://example.test/?user[password]=abc", f"https://example.test/?user[password]={REDACTED}"),
        ("postgres://me:p@ss@db.test/x", f"postgres://me:{REDACTED}@db.test/x"),
        ("see https://:abc@example.test.", f"see https://:{REDACTED}@example.test."),
        (f"my key is {OWN_KEY}", f"my key is {REDACTED}"),
        ({OWN_KEY: 1}, {REDACTED: 1}),
    ],
)
def test_a_secret_is_known_by_its_name_or_its_looks_or_because_it_is_ours(value: Json, kept: Json) -> None:
    assert shown(Redaction(keys=[OWN_KEY]).value(value)) == kept


@pytest.mark.parametrize(
    "value",
    [
        {"input_tokens": 5, "max_tokens": 7, "token_budget": "large"},
        {"prompt_cache_key": "abc", "encrypted_content": "gAAAA", "metadata": {"note": "x"}},
        {"properties": {"password": {"type": "string", "description": "A secret word."}}, "required": ["password"]},
        {"properties": {"api_key": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}},
        {"api_key": None, "secret": "", "credential": True},
        '{"input_tokens": 5, "properties": {"password": {"type": "string"}}}',
        "https://example.test:8080/a@b, mail to me@example.test, https://example.test?to=x:y@z",
        "task-oriented sk-learn, a bearer of news, the password: think of one, api_key = get_key()",
        [1, 2.5, None, True, "ünï", {"": []}],
    ],
)
def test_what_is_no_secret_stays_as_it_was(value: Json) -> None:
    assert shown(Redaction(keys=[OWN_KEY, "", "short"]).value(value)) == value


NAMES = """authorization api_key api-key apiKey client_secret password passwd cookie credential private_key bearer
    accessToken X-TOKEN"""


@pytest.mark.parametrize("name", NAMES.split())
def test_a_name_is_a_secrets_in_json_in_json_inside_a_string_and_in_a_query(name: str) -> None:
    redaction = Redaction()
    assert redaction.clean({name: "abc"}) == {name: REDACTED}
    assert redaction.text(f'{{"{name}":"abc"}}') == f'{{"{name}":"{REDACTED}"}}'
    assert redaction.text(f'so: {{"{name}": "abc"}}') == f'so: {{"{name}": "{REDACTED}"}}'
    assert redaction.text(f"a=b&{name}=abc") == f"a=b&{name}={REDACTED}"


@pytest.mark.parametrize(
    "piece",
    ["-eyJaaaaaaaaa", "eyJaaaaaaaa.x", '"api_', '"tokens":"', "?a-", "bearer ", "sk-short ", '"api_key":"', "://a:"],
)
def test_a_long_text_full_of_beginnings_is_searched_in_no_time(piece: str) -> None:
    text = f"token .eyJ {piece * 100_000}"
    assert Redaction().text(text) == text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("hunter2", REDACTED),
        ({"value": "hunter2"}, {"value": REDACTED}),
        ({"type": "string", "default": "hunter2"}, {"type": REDACTED, "default": REDACTED}),
    ],
)
def test_what_holds_a_secret_among_properties_is_cleaned(given: Json, kept: Json) -> None:
    value: Json = {"properties": {"password": given}}
    assert shown(Redaction().value(value)) == {"properties": {"password": kept}}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"password": 'a"b'}, {"password": REDACTED}),
        ({"password": 12345678}, {"password": REDACTED}),
        ({"passwords": ["hunter2", 3]}, {"passwords": [REDACTED, REDACTED]}),
        ([{"password": {"value": "hunter2"}}], [{"password": {"value": REDACTED}}]),
    ],
)
def test_json_inside_a_string_is_cleaned_like_any_other_however_deep_it_is(given: Json, kept: Json) -> None:
    (whole,) = shown(Redaction().value([json.dumps({"arguments": json.dumps(given)})]))
    assert json.loads(json.loads(whole)["arguments"]) == kept


@pytest.mark.parametrize("depth", [700, 3000, 100_000])
def test_json_inside_a_string_that_is_too_deep_for_us_is_cleaned_all_the_same(depth: int) -> None:
    """How deep that is depends on the version of Python; some read more than they can walk through."""
    deep = "[" * depth + '{"password": "abc"}' + "]" * depth
    assert Redaction().text(deep).replace(" ", "") == deep.replace("abc", REDACTED).replace(" ", "")


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b" [1] ", [1]),
        (b"plain text", "plain text"),
        (b"\xff\xfe", "��"),
        (b'{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        (b'{"api_key": "abc", broken', '{"api_key": "[redacted]", broken'),
        (b"[" * 100_000, "[" * 100_000),
        (b"[" * 100_000 + b"]" * 100_000, "[" * 100_000 + "]" * 100_000),
    ],
    ids=["object", "list", "text", "bytes", "surrogate", "broken", "deep and broken", "too deep for us"],
)
def test_a_body_is_json_where_it_is_json_and_else_a_text(body: bytes, payload: Json) -> None:
    assert shown(Redaction().body(body)) == payload


@given(st.binary())
def test_whatever_the_bytes_are_the_payload_is_json(body: bytes) -> None:
    shown(Redaction(limit=10).body(body))


@pytest.mark.parametrize(
    ("limit", "payload", "cut"),
    [
        (0, {"text": "äöü"}, False),
        (17, {"text": "äöü"}, False),
        (16, '{"text":"äöü"', True),
        (11, '{"text":"ä', True),
        (10, '{"text":"', True),
    ],
)
def test_a_body_beyond_the_limit_is_cut_between_two_characters_and_says_so(
    limit: int, payload: Json, cut: bool
) -> None:
    cut_off = Redaction(limit=limit).body('{"text": "äöü"}'.encode())
    assert (shown(cut_off), cut_off.cut) == (payload, cut)


def test_a_secret_is_removed_before_a_body_is_cut_through_the_middle_of_it() -> None:
    body = b'{"text": "sk-0123456789abcdef0123456789abcdef"}'
    assert shown(Redaction(limit=20).body(body)) == '{"text":"[redacted]"'


def test_large_json_is_parsed_only_within_the_budget() -> None:
    body = b'{"tokens": [' + b"1," * SMALL_BYTES + b'1], "password": "hunter2"}'
    asked: list[int] = []

    def within_budget(data: bytes) -> bool:
        asked.append(len(data))
        return True

    assert shown(Redaction(within_budget=within_budget).body(body))["password"] == REDACTED
    assert asked == [len(body)]
    assert shown(Redaction().body(body)) == body.decode().replace("hunter2", REDACTED)


def test_json_inside_a_string_has_the_same_budget() -> None:
    inner = '{"passwords": ["hunter2"], "tokens": [' + "1," * SMALL_BYTES + "1]}"
    assert "hunter2" in Redaction().text(inner)
    assert "hunter2" not in Redaction(within_budget=lambda _: True).text(inner)


@pytest.mark.parametrize(
    ("secret", "half"),
    [(OWN_KEY, "my o"), ("sk-0123456789abcdef", "0123"), (JWT, "hbGc"), ("postgres://me:hunter2@db.test", "hunt")],
)
def test_of_a_long_text_only_the_beginning_is_searched_and_no_half_of_a_secret_is_shown(secret: str, half: str) -> None:
    seen = 100 + LOOKAHEAD
    redaction = Redaction(keys=[OWN_KEY], limit=100)
    for end in (100, seen):
        for before in range(end - len(secret), end):
            # Much of what is searched goes, so that what is left of it is shorter than the limit.
            text = "sk-" + "a" * (before - 5) + ": " + secret + " " + "-" * SMALL_BYTES
            payload = redaction.body(text.encode())
            assert payload.cut
            assert half not in shown(payload)


def test_a_field_with_an_endless_name_is_not_searched_but_redacted() -> None:
    name = "n" * (LONGEST_NAME + 1)
    assert Redaction().clean({name: "x"}) == {name: REDACTED}
