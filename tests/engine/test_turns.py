"""One turn from request to end, on a backend that does as it is told."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from tests.engine.scripted_backend import (
    USAGE,
    ScriptedBackend,
    ScriptedMedia,
    ScriptedThread,
    Turn,
    WordTokenizer,
    runner_on,
    saying,
)
from tests.support.turn_requests import changed, turn_request
from turnbridge.engine.kept_threads import WarmThreads
from turnbridge.engine.ports import LoadedImage
from turnbridge.engine.structured_output import Conformance, repair_instruction
from turnbridge.engine.turns import TurnRunner
from turnbridge.turn.errors import (
    BackendLost,
    GatewayError,
    InvalidRequest,
    OutputRejected,
    TurnTimeout,
    UpstreamFailed,
)
from turnbridge.turn.events import (
    HistoryCompacted,
    MessageDone,
    MessageStarted,
    SummaryDelta,
    Terminal,
    TextDelta,
    TurnCompleted,
    TurnEvent,
    TurnFailed,
    TurnIncomplete,
    TurnServed,
    Usage,
)
from turnbridge.turn.items import (
    NARRATION,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    ImagePart,
    Message,
    TextPart,
    replace,
)
from turnbridge.turn.request import AnyJsonObject, Compaction, JsonOfSchema, TurnRequest

pytestmark = pytest.mark.anyio


def words(text: str, role: str = "user") -> Message:
    return Message(role=role, parts=(TextPart(text=text),))  # type: ignore[arg-type]  # One of the roles.


ASKED = turn_request(model="m", items=(words("one two"),), instructions="three")
STREAMED = changed(ASKED, streamed=True)
AS_JSON = changed(ASKED, output=AnyJsonObject())


@asynccontextmanager
async def running(backend: ScriptedBackend, request: TurnRequest) -> AsyncIterator[AsyncIterator[Sequence[TurnEvent]]]:
    runner = runner_on(backend)
    async with aclosing(runner.start(request).events()) as batches:
        yield told(batches)
    assert not runner.watch.turns, "no clock runs on"


async def told(batches: AsyncIterator[Sequence[TurnEvent]]) -> AsyncIterator[Sequence[TurnEvent]]:
    """Yield a turn's events, without those that say how it is served."""
    async for batch in batches:
        if not isinstance(batch[0], TurnServed):
            yield batch


async def events_of(backend: ScriptedBackend, request: TurnRequest) -> list[TurnEvent]:
    async with running(backend, request) as batches:
        events = [event async for batch in batches for event in batch]
    assert [event for event in events if isinstance(event, Terminal)] == events[-1:], "one terminal event, at the end"
    assert backend.running == 0, "no conversation stays open"
    return events


async def test_the_models_words_are_handed_on_batch_by_batch() -> None:
    backend = ScriptedBackend([saying("hel", "lo")])
    async with running(backend, STREAMED) as batches:
        assert [batch async for batch in batches] == saying("hel", "lo")
    assert (backend.opened, backend.added) == ([STREAMED], [()])


async def test_the_model_is_shown_what_media_the_request_points_at() -> None:
    inline = ImagePart(url="data:image/png;base64,AA==", param="p0")
    linked = ImagePart(url="https://example.test/a.png", detail="high", param="p1")
    file = FilePart(filename="notes.txt", mime_type=None, data=b"x", param="p2")
    call = FunctionCall(call_id="c", name="look", arguments="{}")
    backend = ScriptedBackend([saying("ok")])
    await events_of(
        backend,
        changed(
            ASKED,
            items=(
                Message(role="user", parts=(TextPart(text="see"), inline, linked, file)),
                call,
                FunctionCallOutput(call_id="c", output=(linked, file)),
            ),
        ),
    )
    fetched = replace(linked, url="data:image/png;base64,https://example.test/a.png@p1")
    text = TextPart(text="text of notes.txt")
    assert backend.opened[0].items == (
        Message(role="user", parts=(TextPart(text="see"), inline, fetched, text)),
        call,
        FunctionCallOutput(call_id="c", output=(fetched, text)),
    )


async def test_media_that_cannot_be_had_fails_the_turn_before_codex_is_asked() -> None:
    refusal = InvalidRequest("no such image", param="p")

    class NoMedia(ScriptedMedia):
        async def image(self, url: str, *, param: str) -> LoadedImage:
            del url, param
            raise refusal

    backend = ScriptedBackend([saying("never")])
    picture = Message(role="user", parts=(ImagePart(url="https://example.test/a.png", param="p"),))
    async with aclosing(
        runner_on(backend, media=NoMedia()).start(changed(ASKED, items=(picture,))).events()
    ) as batches:
        assert [batch async for batch in batches] == [[TurnFailed(refusal)]]
    assert backend.opened == []


# --- Where the client wants the answer to end ---


@pytest.mark.promise("usage.estimated")
@pytest.mark.parametrize(
    ("request_", "said", "ending"),
    [
        (changed(ASKED, stop=("END",)), "four five ", TurnCompleted),
        (changed(ASKED, max_output_tokens=3), "four five", TurnIncomplete),
    ],
    ids=["stop sequence", "token limit"],
)
async def test_an_answer_that_is_cut_off_is_interrupted_before_its_end_is_handed_out(
    request_: TurnRequest, said: str, ending: type[TurnCompleted | TurnIncomplete]
) -> None:
    backend = ScriptedBackend([saying("four five EN", "D six", " and much more")])
    events: list[TurnEvent] = []
    async with running(backend, request_) as batches:
        async for batch in batches:
            events += batch
            assert backend.running == (0 if isinstance(batch[-1], Terminal) else 1)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == said
    # Codex counts no turn that was interrupted: "three", "one two" with the tokens around them, and what was said.
    counted = Usage(input=14, output=WordTokenizer().count(said), estimated=True)
    expected = (
        TurnCompleted(counted, stop="END") if ending is TurnCompleted else TurnIncomplete("max_output_tokens", counted)
    )
    assert events[-1] == expected


@pytest.mark.promise("usage.estimated")
async def test_an_answer_that_is_cut_off_in_the_batch_that_ends_it_is_counted_once() -> None:
    at_once: list[list[TurnEvent]] = [[event for batch in saying("four five EN", "D six") for event in batch]]
    *_, ended = await events_of(ScriptedBackend([at_once]), changed(ASKED, max_output_tokens=3))
    counted = Usage(input=14, output=WordTokenizer().count("four five"), estimated=True)
    assert ended == TurnIncomplete("max_output_tokens", counted)


async def test_pieces_that_might_become_a_stop_sequence_are_held_back_and_then_told() -> None:
    events = await events_of(ScriptedBackend([saying("four ", "E", "N", "T", "!")]), changed(ASKED, stop=("END",)))
    told = [TextDelta("m", "four "), TextDelta("m", "ENT"), TextDelta("m", "!")]
    assert events == [MessageStarted("m", None), *told, MessageDone("m", None, "four ENT!"), TurnCompleted(USAGE)]


async def test_an_answer_that_keeps_within_its_limits_has_the_exact_usage() -> None:
    backend = ScriptedBackend([saying("four ", "five")])
    events = await events_of(backend, changed(ASKED, stop=("END",), max_output_tokens=3))
    assert events[-1] == TurnCompleted(USAGE)


async def test_what_was_said_before_a_reminder_is_counted_once_when_the_answer_is_cut_off_after_it() -> None:
    backend = ScriptedBackend([saying("No."), saying("four five six")])
    events = await events_of(backend, changed(ASKED, must_call=True, max_output_tokens=4))
    counted = USAGE + Usage(input=14, output=WordTokenizer().count("four "), estimated=True)
    assert events[-1] == TurnIncomplete("max_output_tokens", counted)


@pytest.mark.promise("usage.estimated")
async def test_an_answer_that_the_provider_cut_off_without_a_count_is_counted_here() -> None:
    ending = TurnIncomplete("content_filter", Usage(estimated=True))
    spoken: list[TurnEvent] = [
        SummaryDelta("r", 0, "hm "),
        MessageStarted("m", None),
        TextDelta("m", "four five"),
        ending,
    ]
    events = await events_of(ScriptedBackend([[spoken]]), ASKED)
    counted = Usage(input=14, output=5, reasoning=2, estimated=True)
    assert events == [*spoken[:-1], TurnIncomplete("content_filter", counted)]
    reminded = await events_of(ScriptedBackend([saying("No."), [spoken]]), changed(ASKED, must_call=True))
    assert reminded[-1] == TurnIncomplete("content_filter", USAGE + counted)


# --- The shape that the client asked for ---

SCHEMA = JsonOfSchema(
    name="point", schema={"type": "object", "required": ["x"]}, description="A place.", strict=True, enforced=True
)
GOOD, BAD = '{"x": 1}', '{"y": 1}'
PROBLEM = Conformance.for_schema(SCHEMA.schema).problem(BAD) or ""


def rejected(problem: str, usage: Usage) -> tuple[type[GatewayError], str, Usage]:
    return OutputRejected, f"The model's answer does not conform to the requested format: {problem}", usage


def failure(event: TurnEvent) -> tuple[type[GatewayError], str, Usage]:
    assert isinstance(event, TurnFailed)
    return type(event.error), event.error.message, event.usage


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("output", [SCHEMA, AnyJsonObject()], ids=["schema", "object"])
async def test_an_answer_that_conforms_is_handed_on(streamed: bool, output: AnyJsonObject | JsonOfSchema) -> None:
    backend = ScriptedBackend([saying('{"x"', ": 1}")])
    events = await events_of(backend, changed(ASKED, output=output, streamed=streamed))
    assert events == [event for batch in saying('{"x"', ": 1}") for event in batch]
    assert backend.opened[0].items == ASKED.items


async def test_a_schema_that_the_provider_cannot_enforce_is_put_into_words() -> None:
    backend = ScriptedBackend([saying(GOOD)])
    await events_of(backend, changed(ASKED, output=replace(SCHEMA, enforced=False)))
    told, *asked = backend.opened[0].items
    assert tuple(asked) == ASKED.items
    assert told == words(
        "Answer only with JSON named `point` (A place.) that conforms to this JSON Schema:\n"
        '{"type": "object", "required": ["x"]}',
        "developer",
    )


async def test_narration_is_no_part_of_the_answer_that_must_conform() -> None:
    narration: list[TurnEvent] = [MessageStarted("n", NARRATION), TextDelta("n", "Let me see.")]
    backend = ScriptedBackend([[narration, [MessageDone("n", NARRATION, "Let me see.")], *saying(GOOD)]])
    assert (await events_of(backend, AS_JSON))[-1] == TurnCompleted(USAGE)


async def test_an_answer_that_does_not_conform_is_repaired_once_on_the_same_thread() -> None:
    backend = ScriptedBackend([saying(BAD), saying(GOOD)])
    events = await events_of(backend, changed(ASKED, output=SCHEMA))
    assert events == [event for batch in saying(GOOD, usage=USAGE + USAGE) for event in batch]
    assert len(backend.opened) == 1
    assert backend.added == [(), [words(repair_instruction(PROBLEM))]]


async def test_an_answer_that_repair_does_not_help_is_rejected() -> None:
    backend = ScriptedBackend([saying("no"), saying(BAD)])
    events = await events_of(backend, changed(ASKED, output=SCHEMA))
    assert failure(events[-1]) == rejected(PROBLEM, USAGE + USAGE)


CUT_OFF = Usage(input=14, output=1, estimated=True)
BROKEN = UpstreamFailed("gone")


@pytest.mark.promise("structured.repair")
@pytest.mark.parametrize(
    ("second", "request_", "ending"),
    [
        ([[TurnIncomplete("content_filter", USAGE)]], AS_JSON, TurnIncomplete("content_filter", USAGE + USAGE)),
        ([[TurnFailed(BROKEN, USAGE)]], AS_JSON, TurnFailed(BROKEN, USAGE + USAGE)),
        (
            saying("four five six"),
            changed(AS_JSON, max_output_tokens=1),
            TurnIncomplete("max_output_tokens", USAGE + CUT_OFF),
        ),
    ],
    ids=["incomplete", "failed", "cut off here"],
)
async def test_however_a_repair_ends_its_usage_has_both_attempts(
    second: Turn, request_: TurnRequest, ending: Terminal
) -> None:
    events = await events_of(ScriptedBackend([saying("no"), second]), request_)
    assert events[-1] == ending


async def test_a_streamed_answer_that_does_not_conform_fails_at_its_end() -> None:
    backend = ScriptedBackend([saying('{"y"', ": 1}")])
    async with running(backend, changed(ASKED, output=SCHEMA, streamed=True)) as batches:
        got = [batch async for batch in batches]
    expected = saying('{"y"', ": 1}")
    assert (got[:-1], got[-1][:-1]) == (expected[:-1], expected[-1][:-1])
    assert failure(got[-1][-1]) == rejected(PROBLEM, USAGE)
    assert backend.added == [()]


@pytest.mark.parametrize("streamed", [True, False])
async def test_json_before_a_stop_sequence_conforms(streamed: bool) -> None:
    backend = ScriptedBackend([saying('{"x": 1}', "\n\nThat is it.")])
    events = await events_of(backend, changed(AS_JSON, stop=("\n\n",), streamed=streamed))
    assert isinstance(events[-1], TurnCompleted)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == '{"x": 1}'


@pytest.mark.parametrize("streamed", [True, False])
async def test_json_that_a_stop_sequence_cuts_is_neither_repaired_nor_refused(streamed: bool) -> None:
    backend = ScriptedBackend([saying('{"x": ', "1 STOP }")])
    events = await events_of(backend, changed(AS_JSON, stop=("STOP",), streamed=streamed))
    assert isinstance(events[-1], TurnCompleted)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == '{"x": 1 '
    assert len(backend.added) == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_incomplete_need_not_conform(streamed: bool) -> None:
    backend = ScriptedBackend([saying('{"x": ', "12345", " }")])
    events = await events_of(backend, changed(AS_JSON, max_output_tokens=2, streamed=streamed))
    assert isinstance(events[-1], TurnIncomplete)
    assert len(backend.added) == 1


# --- How a turn fails, and how it is left ---


@pytest.mark.parametrize(
    "turn", [UpstreamFailed("x"), [[TurnFailed(UpstreamFailed("x"), USAGE)]]], ids=["opening", "turn"]
)
async def test_a_failure_becomes_the_end_of_the_turn(turn: Turn | GatewayError) -> None:
    (ended,) = await events_of(ScriptedBackend([turn]), ASKED)
    assert failure(ended)[:2] == (UpstreamFailed, "x")


async def test_a_failure_in_the_middle_comes_after_what_was_said() -> None:
    error = UpstreamFailed("x")
    turn: Turn = [*saying("hel")[:2], [TurnFailed(error, USAGE)]]
    events = await events_of(ScriptedBackend([turn]), ASKED)
    assert events == [MessageStarted("m", None), TextDelta("m", "hel"), TurnFailed(error, USAGE)]


BROKEN = UpstreamFailed("It broke.")
SAID: list[TurnEvent] = [MessageStarted("m", None), TextDelta("m", "begun")]


@pytest.mark.parametrize("before", [[], saying("Well.")[:1]], ids=["the first", "a later one"])
@pytest.mark.parametrize("said", [SAID, SAID[:1]], ids=["text", "a start"])
@pytest.mark.parametrize("error", [BROKEN, BackendLost("It died.")], ids=["provider", "Codex"])
async def test_what_was_said_in_the_batch_of_the_failure_is_told_before_it(
    before: list[Sequence[TurnEvent]], said: list[TurnEvent], error: GatewayError
) -> None:
    failed: list[TurnEvent] = [*said, TurnFailed(error)]
    backend = ScriptedBackend([[*before, failed], saying("again")])
    assert await events_of(backend, STREAMED) == [*(event for batch in before for event in batch), *failed]
    assert len(backend.opened) == 1


async def test_a_turn_whose_codex_dies_before_it_said_anything_begins_again_once() -> None:
    dead = [[TurnFailed(BackendLost("Codex ended"))]]
    backend = ScriptedBackend([dead, saying("hello")])
    assert await events_of(backend, ASKED) == [event for batch in saying("hello") for event in batch]
    assert backend.opened == [ASKED, ASKED]
    assert backend.suspected == [False, True]

    backend = ScriptedBackend([dead, dead, saying("never")])
    (ended,) = await events_of(backend, ASKED)
    assert failure(ended)[0] is BackendLost
    assert len(backend.opened) == 2


async def test_a_turn_whose_codex_dies_after_its_client_has_heard_something_fails() -> None:
    dead = BackendLost("Codex ended")
    backend = ScriptedBackend([[*saying("hel")[:2], [TurnFailed(dead)]], saying("never")])
    assert (await events_of(backend, STREAMED))[-1] == TurnFailed(dead)


async def test_a_whole_answer_is_begun_again_however_far_it_had_come() -> None:
    dead = BackendLost("Codex ended")
    backend = ScriptedBackend([[*saying("hel")[:2], [TurnFailed(dead)]], saying("hello")])
    assert await events_of(backend, ASKED) == [event for batch in saying("hello") for event in batch]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_schema_that_is_none_fails_the_turn_and_gives_the_conversation_up(streamed: bool) -> None:
    nonsense = replace(SCHEMA, schema={"type": "nonsense"})
    backend = ScriptedBackend([saying(GOOD)])
    *_, ended = await events_of(backend, changed(ASKED, output=nonsense, streamed=streamed))
    assert failure(ended)[0] is InvalidRequest
    assert backend.running == 0


@pytest.mark.parametrize("read", [1, 2])
async def test_closing_the_iterator_gives_the_conversation_up(read: int) -> None:
    backend = ScriptedBackend([saying("hel", "lo")])
    async with running(backend, STREAMED) as batches:
        for _ in range(read):
            await anext(batches)
        assert backend.running == 1
    assert backend.running == 0


async def test_a_defect_is_not_dressed_up_as_a_failed_turn_and_still_gives_the_conversation_up() -> None:
    class Defective(WordTokenizer):
        def count(self, text: str) -> int:
            raise LookupError(text)

    backend = ScriptedBackend([saying("four five")])
    runner = runner_on(backend, tokenizer=Defective())
    with pytest.raises(LookupError):
        async with aclosing(runner.start(changed(ASKED, max_output_tokens=1)).events()) as batches:
            [batch async for batch in batches]
    assert backend.running == 0


@pytest.mark.parametrize(
    ("silence_s", "whole_s", "words"),
    [(0.05, 60, "silent for 0.05 seconds"), (60, 0.05, "longer than 0.05 seconds")],
    ids=["silence", "whole"],
)
async def test_a_turn_that_takes_too_long_fails_and_is_given_up(silence_s: float, whole_s: float, words: str) -> None:
    backend = ScriptedBackend([saying("never")], pace_s=60)
    async with aclosing(runner_on(backend, silence_s=silence_s, whole_s=whole_s).start(ASKED).events()) as batches:
        served, ended = [event async for batch in batches for event in batch]
    assert served == TurnServed("fresh", "exact")
    error, message, _ = failure(ended)
    assert (error, words in message, backend.running) == (TurnTimeout, True, 0)


@pytest.mark.parametrize("request_", [ASKED, AS_JSON, changed(ASKED, stop=("10}}",))], ids=["text", "json", "stop"])
async def test_a_model_that_speaks_is_not_silent(request_: TurnRequest) -> None:
    """Also while its words are held back to be checked."""
    turn = saying("{", '"a"', ": ", "1", "0", "}")
    backend = ScriptedBackend([turn], pace_s=0.15)
    async with aclosing(runner_on(backend, silence_s=1).start(request_).events()) as batches:
        events = [event async for batch in batches for event in batch]
    assert events[-1] == TurnCompleted(USAGE)


async def test_a_turn_is_known_by_its_thread_and_by_nothing_before_it_has_one() -> None:
    run = runner_on(ScriptedBackend([saying("a", "b")])).start(STREAMED)
    assert (run.retrying, run.heard) == (False, False)
    async with aclosing(run.events()) as batches:
        await anext(batches)
        thread = run.thread
        assert isinstance(thread, ScriptedThread)
        for thread.retrying, thread.heard in ((True, False), (False, True), (False, False)):
            assert (run.retrying, run.heard) == (thread.retrying, thread.heard)


SUMMARY_REFUSED = TurnFailed(InvalidRequest("No summaries here.", param="reasoning.summary"), USAGE)


async def test_a_model_whose_provider_gives_no_summaries_is_asked_without_one_from_then_on() -> None:
    backend = ScriptedBackend([[[SUMMARY_REFUSED]], saying("one"), saying("two"), [[SUMMARY_REFUSED]]])
    runner, asked = runner_on(backend), changed(STREAMED, summary="auto", summary_needed=False)
    for request, ending in ((asked, TurnCompleted(USAGE)), (asked, TurnCompleted(USAGE))):
        assert (await events_on(runner, request))[-1] == ending
    assert (await events_on(runner, changed(asked, summary_needed=True)))[-1] == SUMMARY_REFUSED
    assert [opened.spec.summary for opened in backend.opened] == ["auto", None, None, "auto"]
    assert backend.suspected == [False] * 4


async def events_on(runner: TurnRunner, request: TurnRequest) -> list[TurnEvent]:
    async with aclosing(runner.start(request).events()) as batches:
        return [event async for batch in batches for event in batch]


# --- What comes before and after it ---


def keeping(backend: ScriptedBackend) -> TurnRunner:
    """Return a runner that keeps threads after their turns."""
    return dataclasses.replace(runner_on(backend), warm=WarmThreads(most=4, ttl_s=60))


def following(request: TurnRequest, answer: str) -> TurnRequest:
    return replace(request, items=(*request.items, words(answer, "assistant"), words("And then?")))


CUT_LATER: Turn = [[MessageDone("m", None, "Yes.")], [MessageStarted("n", None)], [TextDelta("n", "END")]]


async def test_an_answer_is_kept_before_its_client_hears_the_end() -> None:
    runner = keeping(ScriptedBackend([saying("hel", "lo")]))
    async with aclosing(runner.start(STREAMED).events()) as batches:
        kept = [(len(runner.warm), isinstance(batch[-1], Terminal)) async for batch in batches]
    assert kept == [(0, False)] * 4 + [(1, True)]
    runner.warm.close()


@pytest.mark.parametrize(
    ("request_", "turns", "heard"),
    [
        (changed(STREAMED, stop=("END",)), [[*saying("Yes.")[:2], *CUT_LATER]], "Yes."),
        (AS_JSON, [saying(" "), saying(GOOD)], GOOD),
    ],
    ids=["cut off", "repaired after a blank answer"],
)
async def test_a_thread_that_holds_more_than_its_client_knows_is_not_gone_on_with(
    request_: TurnRequest, turns: list[Turn | GatewayError], heard: str
) -> None:
    runner = keeping(ScriptedBackend([*turns, saying(GOOD)]))
    await events_on(runner, request_)
    assert (await events_on(runner, following(request_, heard)))[0] == TurnServed("replayed", "exact")
    runner.warm.close()


COMPACTED = changed(
    STREAMED,
    items=(words("one"), words("two")),
    compaction=Compaction(threshold=0, prompt=words("Sum up."), kept=(), introduction="So far: ", tail=1),
)


async def test_a_summary_of_the_history_comes_first_and_is_counted() -> None:
    backend = ScriptedBackend([saying("One."), saying("hello")])
    first, *_, ended = await events_of(backend, COMPACTED)
    assert (first, ended) == (HistoryCompacted("One."), TurnCompleted(USAGE + USAGE))
    assert [opened.items for opened in backend.opened] == [
        (words("one"), words("Sum up.")),
        (words("So far: One.", "developer"), words("two")),
    ]


async def test_a_turn_that_only_fails_tells_of_no_summary() -> None:
    failed = TurnFailed(UpstreamFailed("x"))
    assert await events_of(ScriptedBackend([saying("One."), [[failed]]]), COMPACTED) == [replace(failed, usage=USAGE)]


@pytest.mark.parametrize(
    ("rest", "ending"),
    [
        ([[TurnCompleted(USAGE)]], TurnCompleted(USAGE)),
        (saying("more"), TurnIncomplete("steered", Usage(input=14, output=1, estimated=True))),
    ],
    ids=["at its end", "before another item"],
)
async def test_a_turn_that_is_to_be_cut_ends_between_two_items(rest: Turn, ending: Terminal) -> None:
    begun: Turn = [[MessageStarted("n", None)], [TextDelta("n", "four"), MessageDone("n", None, "four")]]
    run = runner_on(ScriptedBackend([[*begun, *rest]])).start(STREAMED)
    got: list[Sequence[TurnEvent]] = []
    async with aclosing(run.events()) as batches:
        async for batch in batches:
            got.append(batch)
            run.cut = len(got) > 1
    assert got[1:] == [*begun, [ending]]
