"""Any sequence of calls does what it does to a few Python objects, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.store.conftest import empty
from tests.store.samples import (
    OWNER,
    conversation,
    items,
    response,
)
from turnbridge.engine.records import (
    CANCELLED,
    IN_PROGRESS,
    RUNNING,
    ConversationRecord,
    ItemPage,
    ItemQuery,
    KeptItem,
    ResponseRecord,
)
from turnbridge.store.schema import store_url
from turnbridge.store.sql_store import open_store

# Picks one of those that are there, whatever their number.
CHOICE = st.integers(0, 1000)
SOME = st.integers(0, 3)


@dataclass(eq=False)
class Segment:
    """A piece of a history."""

    parent: "Segment | None" = None
    inputs: list[KeptItem] = field(default_factory=list)
    outputs: list[KeptItem] = field(default_factory=list)

    def chain(self) -> Iterator["Segment"]:
        """Yield this segment and all before it."""
        yield self
        if self.parent is not None:
            yield from self.parent.chain()

    def before(self) -> list[KeptItem]:
        """Return all items before this segment."""
        return [item for one in reversed([*self.chain()][1:]) for item in (*one.inputs, *one.outputs)]


@dataclass
class Answer:
    """A response as it should be kept."""

    record: ResponseRecord
    segment: Segment
    events: bytes | None = None
    talk: str | None = None
    """The conversation that it belongs to when it has ended."""


@dataclass
class Talk:
    """A conversation as it should be kept."""

    record: ConversationRecord
    head: Segment
    changed_at: int


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to a model of it."""

    def __init__(self, fresh_url: Callable[[], str]) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        url = fresh_url()
        if url.startswith("postgres"):
            self._runner.run(empty(url))
        self._time = 1000
        self.store = self._runner.run(open_store(url, now=lambda: self._time))
        self._numbers = count()
        self.answers: dict[str, Answer] = {}
        self.talks: dict[str, Talk] = {}

    def teardown(self) -> None:
        """Let go of the store."""
        self._runner.run(self.store.aclose())
        self._runner.close()

    def _name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _items(self, number: int) -> list[KeptItem]:
        return items(*(self._name("i") for _ in range(number)))

    def _segment_of(self, name: str) -> int:
        history = self._runner.run(self.store.response_history(OWNER, name))
        assert history is not None
        return history.segment

    @rule(asked=SOME, said=SOME, runs=st.booleans(), after=CHOICE, fresh=st.booleans())
    def answer(self, asked: int, said: int, runs: bool, after: int, fresh: bool) -> None:
        """Keep a response, by itself or after another one."""
        before = None if fresh else chosen(self.answers, after)
        parent = None if before is None else self.answers[before].segment
        segment = Segment(parent, self._items(asked), [] if runs else self._items(said))
        self._keep(segment, runs, continues=None if before is None else self._segment_of(before))

    @precondition(lambda self: self.talks)
    @rule(asked=SOME, said=SOME, where=CHOICE)
    def answer_in_conversation(self, asked: int, said: int, where: int) -> None:
        """Keep a response at the end of a conversation."""
        talk = self.talks[picked(self.talks, where)]
        segment = Segment(talk.head, self._items(asked), self._items(said))
        self._keep(segment, False, conversation=talk.record.id)
        talk.head, talk.changed_at = segment, self._time

    @precondition(lambda self: self.talks)
    @rule(asked=SOME, where=CHOICE)
    def run_beside_conversation(self, asked: int, where: int) -> None:
        """Keep a response that runs, and that is to be the end of a conversation."""
        talk = self.talks[picked(self.talks, where)]
        history = self._runner.run(self.store.conversation_history(OWNER, talk.record.id))
        assert history is not None
        self._keep(Segment(talk.head, self._items(asked)), True, continues=history.segment, talk=talk.record.id)

    def _keep(
        self,
        segment: Segment,
        runs: bool,
        *,
        continues: int | None = None,
        conversation: str | None = None,
        talk: str | None = None,
    ) -> None:
        name = self._name("r")
        record = response(name, status=IN_PROGRESS if runs else "completed", created_at=self._time)
        self._runner.run(
            self.store.add_response(
                record,
                continues=continues,
                inputs=segment.inputs,
                outputs=segment.outputs,
                conversation=conversation,
                lease_s=1.0 if runs else None,
            )
        )
        self.answers[name] = Answer(record, segment, talk=talk)

    @precondition(lambda self: self.answers)
    @rule(which=CHOICE, said=SOME, cancelled=st.booleans())
    def end(self, which: int, said: int, cancelled: bool) -> None:
        """End a response, if it runs."""
        answer = self.answers[picked(self.answers, which)]
        runs = answer.record.status in RUNNING
        if cancelled:
            record = replace(answer.record, status=CANCELLED)
            assert self._runner.run(self.store.finish_response(record)) == runs
        else:
            record = replace(answer.record, status="completed", body={"said": said})
            outputs, events = self._items(said), b"e" * said
            finishing = self.store.finish_response(record, outputs=outputs, events=events, conversation=answer.talk)
            assert self._runner.run(finishing) == runs
            if runs:
                answer.segment.outputs, answer.events = outputs, events
                if (talk := self.talks.get(answer.talk or "")) is not None:
                    answer.segment.parent = talk.head
                    talk.head, talk.changed_at = answer.segment, self._time
        if runs:
            answer.record = record

    @precondition(lambda self: self.answers)
    @rule(which=CHOICE)
    def delete_answer(self, which: int) -> None:
        """Remove a response."""
        name = picked(self.answers, which)
        assert self._runner.run(self.store.delete_response(OWNER, name))
        del self.answers[name]

    @rule(size=SOME)
    def converse(self, size: int) -> None:
        """Begin a conversation."""
        record = conversation(self._name("c"), created_at=self._time)
        head = Segment(None, self._items(size))
        self._runner.run(self.store.add_conversation(record, head.inputs))
        self.talks[record.id] = Talk(record, head, self._time)

    @precondition(lambda self: self.talks)
    @rule(where=CHOICE, size=SOME)
    def append(self, where: int, size: int) -> None:
        """Add items to a conversation."""
        talk = self.talks[picked(self.talks, where)]
        talk.head = Segment(talk.head, self._items(size))
        talk.changed_at = self._time
        assert self._runner.run(self.store.append_items(OWNER, talk.record.id, talk.head.inputs))

    @precondition(lambda self: self.talks)
    @rule(where=CHOICE, which=CHOICE)
    def delete_item(self, where: int, which: int) -> None:
        """Remove an item from a conversation, if it has any."""
        talk = self.talks[picked(self.talks, where)]
        there = {item.id: item for one in talk.head.chain() for item in (*one.inputs, *one.outputs)}
        name = chosen(there, which) or "nothing"
        assert self._runner.run(self.store.delete_item(OWNER, talk.record.id, name)) == (name in there)
        if name in there:
            talk.changed_at = self._time
        for one in talk.head.chain():
            one.inputs = [item for item in one.inputs if item.id != name]
            one.outputs = [item for item in one.outputs if item.id != name]

    @precondition(lambda self: self.talks)
    @rule(where=CHOICE)
    def delete_conversation(self, where: int) -> None:
        """Remove a conversation."""
        name = picked(self.talks, where)
        assert self._runner.run(self.store.delete_conversation(OWNER, name))
        del self.talks[name]

    @rule(age=st.integers(0, 20))
    def prune(self, age: int) -> None:
        """Remove what is older than something."""
        limit = self._time - age
        old = [
            name
            for name, answer in self.answers.items()
            if answer.record.created_at < limit and answer.record.status not in RUNNING
        ]
        still = [name for name, talk in self.talks.items() if talk.changed_at < limit]
        pruned = self._runner.run(self.store.prune(made_before=limit))
        assert (pruned.responses, pruned.conversations) == (len(old), len(still))
        for name in old:
            del self.answers[name]
        for name in still:
            del self.talks[name]

    @rule(passed=st.integers(1, 5))
    def wait(self, passed: int) -> None:
        """Let time pass."""
        self._time += passed

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        """Compare all that can be read."""
        self._runner.run(self._compare())

    async def _compare(self) -> None:
        for name, answer in self.answers.items():
            assert await self.store.response(OWNER, name) == answer.record
            assert await self.store.response_events(OWNER, name) == answer.events
            history = await self.store.response_history(OWNER, name)
            assert history is not None
            assert list(history.inputs) == answer.segment.before() + answer.segment.inputs
            assert list(history.outputs) == answer.segment.outputs
            assert await self.store.response_outputs(OWNER, name) == answer.segment.outputs
            await self._compare_pages(partial(self.store.response_inputs, OWNER, name), list(history.inputs))
        for name, talk in self.talks.items():
            assert await self.store.conversation(OWNER, name) == talk.record
            told = await self.store.conversation_history(OWNER, name)
            assert told is not None
            assert list(told.inputs) == talk.head.before() + talk.head.inputs + talk.head.outputs
            await self._compare_pages(partial(self.store.conversation_items, OWNER, name), list(told.inputs))
        needed = {one for answer in self.answers.values() for one in answer.segment.chain()}
        needed |= {one for talk in self.talks.values() for one in talk.head.chain()}
        figures = await self.store.figures()
        assert (figures.responses, figures.conversations) == (len(self.answers), len(self.talks))
        assert figures.items == sum(len(one.inputs) + len(one.outputs) for one in needed)
        assert len([line async for line in self.store.export() if line["kind"] == "segment"]) == len(needed)

    async def _compare_pages(
        self, page: Callable[[ItemQuery], Awaitable[ItemPage | None]], expected: list[KeptItem]
    ) -> None:
        for newest_first in (False, True):
            listed: list[KeptItem] = []
            more = True
            while more:
                after = listed[-1].id if listed else None
                found = await page(ItemQuery(after=after, limit=3, newest_first=newest_first))
                assert found is not None
                listed += found.items
                more = found.has_more
            assert listed == (expected[::-1] if newest_first else expected)


def chosen(names: dict[str, Answer] | dict[str, KeptItem], choice: int) -> str | None:
    """Return one of the names, if there are any."""
    return list(names)[choice % len(names)] if names else None


def picked(names: dict[str, Answer] | dict[str, Talk], choice: int) -> str:
    """Return one of the names."""
    return list(names)[choice % len(names)]


@pytest.mark.parametrize(("database", "examples"), [("sqlite", 40), ("postgres", 12)])
@pytest.mark.timeout(300)  # Some hundred steps, each of which is compared with all that is kept.
def test_a_store_does_what_a_few_objects_would_do(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, examples: int
) -> None:
    numbers = count()

    def fresh_url() -> str:
        if database == "sqlite":
            return store_url(tmp_path / str(next(numbers)))
        url: str = request.getfixturevalue("postgres")
        return url

    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(fresh_url)

    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))
