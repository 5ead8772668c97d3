"""Turns recorded from the real binary, and the events that the gateway makes of them."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.shared.event_streams import check_stream
from tests.api.shared.told import Told, told
from tests.recordings.record import HERE, SCENARIOS, record
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import TurnDecoder, lost_image
from turnbridge.codex.protocol.errors import CONTEXT_WORDS, DEFAULT_RETRY_AFTER_S, LOGIN_HELP
from turnbridge.codex.protocol.jsonrpc import LineSplitter, decode_line
from turnbridge.turn import errors
from turnbridge.turn import events as ev
from turnbridge.turn.items import ImagePart, TextPart


class Failed(NamedTuple):
    """`TurnFailed`, with an error that compares."""

    error: Told
    usage: ev.Usage = ev.Usage()


USAGE = ev.Usage(input=10, cached=2, output=5, reasoning=1)
COMPLETED = ev.TurnCompleted(USAGE)
CUT = "stream disconnected before completion: Transport error: network error: error decoding response body"
MARKUP = "<oai-mem-citation>MEMORY.md:1-2</oai-mem-citation>"


def said(item_id: str, *pieces: str, phase: str | None = None) -> list[object]:
    """Return the events of a whole message."""
    deltas = [ev.TextDelta(item_id, piece) for piece in pieces]
    return [ev.MessageStarted(item_id, phase), *deltas, ev.MessageDone(item_id, phase, "".join(pieces))]


def thought(item_id: str, *summary: str, encrypted: str | None = None) -> list[object]:
    """Return the events of a whole thought of which the summary is seen."""
    deltas = [ev.SummaryDelta(item_id, index, text) for index, text in enumerate(summary)]
    return [ev.ReasoningStarted(item_id), *deltas, ev.ReasoningDone(item_id, summary, (), encrypted)]


EXPECTED: dict[str, list[object]] = {
    "phases": [
        *said("msg_1_0", "Let me ", "see.", phase="commentary"),
        *said("msg_1_1", "hel", "lo", phase="final_answer"),
        ev.TurnCompleted(ev.Usage(input=20, cached=8, output=7, reasoning=0)),
    ],
    "reasoning": [
        *thought("rs_1_0", "First.", "Second.", encrypted="c2VjcmV0"),
        *said("msg_1_1", "Done."),
        COMPLETED,
    ],
    "open_reasoning": [
        ev.ReasoningStarted("rs_1_0"),
        ev.ReasoningDelta("rs_1_0", 0, "All my thoughts."),
        ev.ReasoningDone("rs_1_0", (), ("All my thoughts.",), None),
        *said("msg_1_1", "Done."),
        COMPLETED,
    ],
    "silent_reasoning": [*thought("rs_1_0", encrypted="c2VjcmV0"), *said("msg_1_1", "Done."), COMPLETED],
    "no_deltas": [*thought("rs_1_0", "Hm."), *said("msg_1_1", "Whole."), COMPLETED],
    "empty_message": [*said("msg_1_0"), COMPLETED],
    "two_parts": [
        ev.MessageStarted("msg_1_0", None),
        ev.TextDelta("msg_1_0", "One. "),
        ev.TextDelta("msg_1_0", "Two."),
        ev.MessageDone(
            "msg_1_0",
            None,
            "One. Two.",
            (
                {
                    "type": "url_citation",
                    "start_index": 5,
                    "end_index": 8,
                    "url": "https://example.com/",
                    "title": "Example",
                },
            ),
        ),
        COMPLETED,
    ],
    # Codex streams nothing of its markup. At the end of a text it can still be told; inside it is lost.
    "hidden_markup": [*said("msg_1_0", "It ", "rains.", MARKUP), *said("msg_1_1", "It ", "rains."), COMPLETED],
    "refusal": [
        Failed(
            Told(
                errors.PolicyRefusal,
                "The model began a message that Codex did not pass on; most likely it refused to answer.",
                code="refusal",
            ),
            USAGE,
        )
    ],
    "undeclared_call": [*said("msg_2_0", "Never mind."), ev.TurnCompleted(USAGE + USAGE)],
    "undeclared_search": [*said("msg_2_0", "Never mind."), ev.TurnCompleted(USAGE + USAGE)],
    "retry_of_silence": [*said("msg_2_0", "At last."), COMPLETED],
    "retry_of_text": [
        ev.MessageStarted("msg_1_0", None),
        ev.TextDelta("msg_1_0", "Hel"),
        Failed(Told(errors.UpstreamFailed, CUT, code="upstream_error")),
    ],
    "retry_of_thought": [
        *thought("rs_cut", "Hm."),
        *thought("rs_whole", "Hm.", "So."),
        *said("msg_2_1", "Yes."),
        COMPLETED,
    ],
    "retry_after_message": [*said("msg_1_0", "I look.", phase="commentary"), *said("msg_2_0", "I see."), COMPLETED],
    "interrupted": [
        ev.MessageStarted("msg_1_0", None),
        ev.TextDelta("msg_1_0", "a"),
        Failed(Told(errors.UpstreamFailed, "Codex ended the turn as interrupted.", code="upstream_error")),
    ],
    "cut_stream": [
        ev.MessageStarted("msg_1_0", None),
        ev.TextDelta("msg_1_0", "Hel"),
        Failed(Told(errors.UpstreamFailed, CUT, code="upstream_error")),
    ],
    "incomplete_length": [
        *said("msg_1_0", "Half a"),
        ev.TurnIncomplete("max_output_tokens", ev.Usage(estimated=True)),
    ],
    "incomplete_filter": [ev.TurnIncomplete("content_filter", ev.Usage(estimated=True))],
    "failed_rate_limit": [
        Failed(
            Told(
                errors.UpstreamRateLimited,
                "rate limit exceeded: Rate limit reached. Please try again in 11.054s.",
                code="rate_limit_exceeded",
                retry_after=11.054,
            )
        )
    ],
    "failed_context": [
        Failed(
            Told(
                errors.ContextTooLong,
                f"{CONTEXT_WORDS} Codex ran out of room in the model's context window. "
                "Start a new thread or clear earlier history before retrying.",
                code="context_length_exceeded",
                param="input",
            )
        )
    ],
    "failed_quota": [
        Failed(
            Told(
                errors.QuotaExhausted,
                "Quota exceeded. Check your plan and billing details.",
                code="insufficient_quota",
            )
        )
    ],
    "failed_server": [
        Failed(
            Told(
                errors.UpstreamFailed,
                "stream disconnected before completion: It broke.",
                code="upstream_error",
            )
        )
    ],
    "http_400": [
        Failed(Told(errors.InvalidRequest, "Bad effort.", code="unsupported_value", param="reasoning.effort"))
    ],
    "http_400_context": [
        Failed(
            Told(
                errors.ContextTooLong,
                f"{CONTEXT_WORDS} Too long.",
                code="context_length_exceeded",
                param="input",
            )
        )
    ],
    "http_401": [
        Failed(
            Told(
                errors.LoginRequired,
                "The provider rejected Codex's login: unexpected status 401 Unauthorized: Bad key., "
                f"url: http://127.0.0.1:1/v1/responses {LOGIN_HELP}",
                code="codex_login_required",
            )
        )
    ],
    "http_429": [
        Failed(
            Told(
                errors.UpstreamRateLimited,
                "exceeded retry limit, last status: 429 Too Many Requests",
                code="rate_limit_exceeded",
                retry_after=DEFAULT_RETRY_AFTER_S,
            )
        )
    ],
    "http_429_quota": [
        Failed(
            Told(
                errors.QuotaExhausted,
                "Quota exceeded. Check your plan and billing details.",
                code="insufficient_quota",
            )
        )
    ],
    "http_500": [
        Failed(
            Told(
                errors.UpstreamFailed,
                "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001
                code="upstream_error",
            )
        )
    ],
    "http_503": [
        Failed(
            Told(
                errors.UpstreamOverloaded,
                "Selected model is at capacity. Please try a different model.",
                code="server_is_overloaded",
                retry_after=DEFAULT_RETRY_AFTER_S,
            )
        )
    ],
}


def recording(name: str) -> bytes:
    """Return what was recorded."""
    return (HERE / f"{name}.jsonl").read_bytes()


def notifications(lines: list[bytes]) -> list[schema.Notification]:
    """Return the notifications of these lines; every one of them is known."""
    messages = [decode_line(line) for line in lines]
    return [
        msgspec.json.decode(message.params, type=schema.NOTIFICATIONS[message.method or ""]) for message in messages
    ]


def decoded(lines: list[bytes]) -> list[ev.TurnEvent]:
    """Return the events of a recorded turn."""
    notes = notifications(lines)
    ended = notes[-1]
    assert isinstance(ended, schema.TurnCompleted)
    decoder = TurnDecoder()
    decoder.turn_id = ended.turn.id
    return [event for note in notes for event in decoder.read([note])]


def comparable(events: list[ev.TurnEvent]) -> list[object]:
    """Return events that compare as a whole."""
    return [Failed(told(event.error), event.usage) if isinstance(event, ev.TurnFailed) else event for event in events]


@pytest.mark.promise("streaming.retried-by-codex", "errors.refusal")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recorded_turn_becomes_exactly_these_events(name: str) -> None:
    events = decoded(recording(name).splitlines())
    assert comparable(events) == EXPECTED[name]
    check_stream(events)


@pytest.mark.promise("streaming.any-chunking")
@given(st.sampled_from(["phases", "reasoning", "hidden_markup"]), st.data())
def test_any_chunking_of_the_pipe_gives_the_same_events(name: str, data: st.DataObject) -> None:
    stream = recording(name)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    splitter, lines = LineSplitter(), list[bytes]()
    for start, end in pairwise(sorted({0, *cuts, len(stream)})):
        lines += splitter.feed(stream[start:end])
    assert comparable(decoded(lines)) == EXPECTED[name]


def test_an_image_that_codex_could_not_read_is_missing_from_its_echo() -> None:
    sent = ImagePart(url="data:image/png;base64,AAAA", param="input[0].content[0]")
    text, image = (
        note
        for note in notifications(recording("phases").splitlines()[:2])
        if isinstance(note, schema.RawItemCompleted)
    )
    assert lost_image(text, [sent]) == sent
    assert lost_image(image, [TextPart(text="Look:"), sent]) is None


@pytest.mark.promise("faults.other-versions")
@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_binary_still_says_what_was_recorded(name: str, tmp_path: Path) -> None:
    assert await record(SCENARIOS[name], tmp_path) == recording(name).decode().splitlines()
