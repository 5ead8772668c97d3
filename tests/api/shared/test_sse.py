"""Frames of server-sent events, as a parser of the standard reads them."""

import json

import pytest
from httpx2 import EventSource, Request, Response
from hypothesis import given
from hypothesis import strategies as st

from turnbridge.api.shared import sse


@pytest.mark.promise("streaming.responses.frames")
def test_frames_are_written_whole() -> None:
    assert sse.data_frame({"a": 1}) == b'data: {"a":1}\n\n'
    assert sse.named_frames([{"type": "done", "a": "é"}]) == 'event: done\ndata: {"type":"done","a":"é"}\n\n'.encode()
    assert sse.comment("still thinking") == b": still thinking\n\n"
    assert sse.DONE == b"data: [DONE]\n\n"


@pytest.mark.promise("streaming.any-text")
@given(st.lists(st.text(), max_size=4))
def test_any_text_survives_a_stream(texts: list[str]) -> None:
    frames = [sse.comment("hello")]
    for text in texts:
        frames += [
            sse.data_frame({"text": text}),
            sse.named_frames([{"type": "delta", "text": text}]),
            sse.comment("again"),
        ]
    headers = {"content-type": "text/event-stream"}
    request = Request("POST", "http://127.0.0.1/")
    response = Response(200, headers=headers, content=b"".join(frames), request=request)
    read = [(event.event, json.loads(event.data)) for event in EventSource(response)]
    assert [(name, data["text"]) for name, data in read] == [
        (name, text) for text in texts for name in ("message", "delta")
    ]
