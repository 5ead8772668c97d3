"""Compiles schemas and checks answers against them: simple ones right here, all others in a helper process.

A schema can be made so that a short answer takes hours to check, and neither the library nor its regular expressions
can be interrupted (docs/decisions/0017-work-with-a-deadline.md).
"""

import functools
import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from turnbridge.api.shared.strict_schema import schema_error
from turnbridge.engine.ports import Flaw, JobFailed, NoHelper
from turnbridge.engine.structured_output import Conformance
from turnbridge.offload.helpers import HelperPool, JobLimits
from turnbridge.turn.errors import BackendUnavailable, OutputRejected
from turnbridge.turn.items import JsonObject
from turnbridge.turn.json_schema import simple_size

# The largest schemas that are taken compile in 0.1 seconds, and answers are checked in milliseconds: this is for slow
# machines. Two at once, so that one client's heavy schema does not hold up all others.
LIMITS = JobLimits(seconds=2.0, megabytes=768, processes=2, waiting=64)

# A simple schema is used right here if its values times the characters of the answer are no more than this: each pair
# is looked at once at most, which takes some ten nanoseconds. To read the JSON takes a microsecond for each value.
MOST_PAIRS = 1_000_000
MOST_CHARS = 100_000

# How many schemas are remembered with what is wrong with them, if anything: clients send the same ones every time.
MOST_REMEMBERED = 4096
# In a helper: as compiled, they take up to some megabytes each.
MOST_COMPILED = 32


class _Job(msgspec.Struct):
    """Schemas to compile, or the one that a text is to conform to."""

    schemas: list[msgspec.Raw]
    text: str | None = None


class SchemaJudge:
    """The engine's `Judge`."""

    def __init__(self, limits: JobLimits = LIMITS) -> None:
        self._limits = limits
        self._helpers = HelperPool(f"{__name__}:{answer_job.__name__}", limits)
        self._known: OrderedDict[bytes, str | None] = OrderedDict()

    @property
    def helper_pids(self) -> list[int]:
        """Return the ids of the helper processes that are there now."""
        return self._helpers.pids

    async def aclose(self) -> None:
        """End the helpers."""
        await self._helpers.aclose()

    async def first_flaw(self, schemas: Sequence[JsonObject]) -> Flaw | None:
        """Return why one of these is not a JSON Schema that stands on its own."""
        written = [msgspec.json.encode(schema) for schema in schemas]
        digests = [hashlib.blake2b(one, digest_size=32).digest() for one in written]
        unknown = [index for index, digest in enumerate(digests) if digest not in self._known]
        flaws = [self._known.get(digest) for digest in digests]
        if unknown:
            try:
                answer = await self._run(_Job(schemas=[msgspec.Raw(written[index]) for index in unknown]))
            except JobFailed:
                why = f"to compile it takes {self._most()}. Simplify its patterns and references."
                return Flaw(unknown[0] if len(unknown) == 1 else None, why)
            for index, flaw in zip(unknown, msgspec.json.decode(answer, type=list[str | None]), strict=True):
                flaws[index] = flaw
                self._remember(digests[index], flaw)
        return next((Flaw(index, flaw) for index, flaw in enumerate(flaws) if flaw is not None), None)

    async def problem(self, schema: JsonObject, text: str) -> str | None:
        """Return in a sentence what keeps `text` from being JSON that conforms to the schema; nothing if it does."""
        size = simple_size(schema)
        in_place = size is not None and len(text) <= MOST_CHARS and size * len(text) <= MOST_PAIRS
        if in_place and Conformance.for_schema(schema).accepts(text):
            return None
        # To find out what is wrong takes much longer than to find that something is.
        try:
            answer = await self._run(_Job(schemas=[msgspec.Raw(msgspec.json.encode(schema))], text=text))
        except JobFailed as error:
            raise OutputRejected(
                f"To check what the model said against the schema takes {self._most()}. "
                "Simplify its patterns and references.",
                code="output_not_checked",
            ) from error
        return msgspec.json.decode(answer, type=list[str | None])[0]

    async def _run(self, job: _Job) -> bytes:
        try:
            return await self._helpers.run(msgspec.json.encode(job))
        except NoHelper as error:
            raise BackendUnavailable(
                "The gateway is busy with other schemas. Try again.", code="schema_check_busy", retry_after=1
            ) from error

    def _most(self) -> str:
        return f"more than {self._limits.seconds:g} seconds or {self._limits.megabytes} MB"

    def _remember(self, digest: bytes, flaw: str | None) -> None:
        self._known[digest] = flaw
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)


def answer_job(given: bytes) -> bytes:
    """Do a job, in a helper: return what is wrong with each schema, or with the text."""
    job = msgspec.json.decode(given, type=_Job)
    schemas = [bytes(schema) for schema in job.schemas]
    if job.text is not None:
        return msgspec.json.encode([_compiled(schemas[0]).problem(job.text)])
    return msgspec.json.encode([schema_error(msgspec.json.decode(schema)) for schema in schemas])


@functools.lru_cache(MOST_COMPILED)
def _compiled(schema: bytes) -> Conformance:
    return Conformance.for_schema(msgspec.json.decode(schema))
