"""What a client reads of a stream, through the real Codex."""

import pytest

from tests.support.gateway import Bridge
from turnbridge.demo.replies import answer, message

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def test_text_in_pieces_arrives_whole_in_a_chat_stream(bridge: Bridge) -> None:
    bridge.script(answer(message("hello", pieces=["hel", "lo"])))
    stream = await bridge.client.chat.completions.create(
        model="gpt-5.5", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
    assert [piece for piece in pieces if piece] == ["hel", "lo"]
