"""Messages of a WebSocket: what is read of them, and how the frames of a stream become messages."""

import json

import pytest

from turnbridge.api.responses.socket_events import (
    error_message,
    messages,
    read_event,
    refusal,
    request_body,
    told_headers,
)
from turnbridge.api.shared import sse
from turnbridge.api.shared.errors import error_event
from turnbridge.turn.errors import InvalidRequest, RateLimited
from turnbridge.turn.items import JsonObject

ERROR: JsonObject = {"message": "No.", "type": "server_error", "param": None, "code": "upstream_error"}


@pytest.mark.parametrize(
    "message", [b"", b"no", b"[]", b'"a"', b'{"type": ', b"\xff", b"[" * 100_000, b'{"type":"\xff"}']
)
def test_what_is_no_json_object_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_event(message)
    assert refused.value.error_code == "invalid_json"


def test_only_what_decides_where_a_message_goes_is_read() -> None:
    event = read_event(b'{"type": 1, "stream_id": [], "previous_response_id": "resp_1", "input": {"any": "thing"}}')
    assert (event.type, event.stream_id, event.previous_response_id) == (1, [], "resp_1")


@pytest.mark.parametrize("stream", [True, False, None, "yes", 7])
def test_a_message_is_the_body_of_a_request_and_always_streamed(stream: str | int | None) -> None:
    message: JsonObject = {"type": "response.create", "stream_id": "a", "model": "m", "stream": stream}
    assert request_body(message) == ({"model": "m", "stream": True}, True)


@pytest.mark.parametrize(("generate", "asked"), [(None, True), (True, True), (False, False)])
def test_generate_says_whether_the_model_is_asked(generate: bool | None, asked: bool) -> None:
    assert request_body({"generate": generate}) == ({"stream": True}, asked)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("background", True, "unsupported_parameter"),
        ("generate", "no", "invalid_type"),
        ("generate", 0, "invalid_type"),
    ],
)
def test_what_a_socket_cannot_do_is_refused(field: str, value: str | bool | int, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        request_body({field: value})
    assert (refused.value.error_code, refused.value.param) == (code, field)


def test_frames_become_messages_without_names_and_comments() -> None:
    events: list[JsonObject] = [{"type": "response.created", "a": "x\n\ny"}, {"type": "response.completed"}]
    frames = sse.comment("keepalive") + sse.named_frames(events) + sse.DONE
    told, names = messages(frames, None)
    assert [json.loads(each) for each in told] == events
    assert names == [b"response.created", b"response.completed"]
    assert messages(b"", None) == ([], [])


def test_every_message_of_a_named_lane_has_its_name() -> None:
    told, _ = messages(sse.named_frames([{"type": "response.created"}]), "a-1")
    assert [json.loads(each) for each in told] == [{"type": "response.created", "stream_id": "a-1"}]


def test_the_error_of_a_stream_is_nested() -> None:
    told, _ = messages(sse.named_frames([error_event(ERROR, number=4)]), "a")
    assert [json.loads(each) for each in told] == [
        {"type": "error", "sequence_number": 4, "error": ERROR, "stream_id": "a"}
    ]


def test_an_error_has_its_status_and_its_headers_twice() -> None:
    headers = told_headers([(b"Retry-After", b"2"), (b"content-type", b"text/plain"), (b"x-ratelimit-limit", b"1")])
    assert headers == {"retry-after": "2", "x-ratelimit-limit": "1"}
    assert json.loads(error_message(502, ERROR, headers, None)) == {
        "type": "error",
        "status": 502,
        "error": {**ERROR, "headers": headers},
        "headers": headers,
    }


def test_a_refusal_tells_when_to_come_back_and_nothing_of_http() -> None:
    told = json.loads(refusal(RateLimited("Later.", code="queue_full", retry_after=0.5), "a"))
    assert (told["status"], told["headers"], told["stream_id"]) == (429, {"retry-after": "1"}, "a")
