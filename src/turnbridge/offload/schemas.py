"""Validates schemas, and answers against them: with simple schemas in this process, with all others in a helper.

A schema can be written so that validating a short answer takes hours, and neither the library nor its regular
expressions can be interrupted (docs/decisions/0017-work-with-a-deadline.md).
"""

import functools
import hashlib
from collections.abc import Sequence

import msgspec

from turnbridge.api.shared.strict_schema import schema_error
from turnbridge.engine.ports import Flaw, JobFailed, NoHelper
from turnbridge.engine.structured_output import Conformance
from turnbridge.offload.helpers import HelperPool, JobLimits
from turnbridge.turn.errors import BackendUnavailable, OutputRejected
from turnbridge.turn.items import JsonObject
from turnbridge.turn.json_schema import simple_size

# The largest accepted schemas compile in 0.1 seconds, and validation takes milliseconds: this is for slow machines. Two
# at once, so that one client's expensive schema does not block all others.
LIMITS = JobLimits(seconds=2.0, megabytes=768, processes=2, waiting=64)

# A simple schema is used in this process up to this product of its values and the characters of the answer: each pair
# is visited at most once, which takes some ten nanoseconds. Parsing the JSON takes a microsecond per value.
MOST_PAIRS = 1_000_000
MOST_CHARS = 100_000

# Size of the cache of validated schemas: clients send the same ones every time.
MOST_CACHED = 4096
# In a helper: compiled schemas take up to some megabytes each.
MOST_COMPILED = 32


class _Job(msgspec.Struct):
    """Schemas to validate, or one to validate a text against."""

    schemas: list[msgspec.Raw]
    text: str | None = None


class SchemaJudge:
    """The engine's `Judge`."""

    def __init__(self, limits: JobLimits = LIMITS) -> None:
        self._limits = limits
        self._helpers = HelperPool(f"{__name__}:{answer_job.__name__}", limits)
        self._known: dict[bytes, str | None] = {}

    async def aclose(self) -> None:
        await self._helpers.aclose()

    async def first_flaw(self, schemas: Sequence[JsonObject]) -> Flaw | None:
        """Return why one of these is not a valid, self-contained JSON Schema."""
        written = [msgspec.json.encode(schema) for schema in schemas]
        digests = [hashlib.blake2b(one, digest_size=32).digest() for one in written]
        unknown = [index for index, digest in enumerate(digests) if digest not in self._known]
        flaws = [self._known.get(digest) for digest in digests]
        if unknown:
            try:
                answer = await self._run(_Job(schemas=[msgspec.Raw(written[index]) for index in unknown]))
            except JobFailed:
                why = f"to compile it takes {self._limits_text()}. Simplify its patterns and references."
                return Flaw(unknown[0] if len(unknown) == 1 else None, why)
            for index, flaw in zip(unknown, msgspec.json.decode(answer, type=list[str | None]), strict=True):
                flaws[index] = flaw
                self._known[digests[index]] = flaw
            while len(self._known) > MOST_CACHED:
                del self._known[next(iter(self._known))]
        return next((Flaw(index, flaw) for index, flaw in enumerate(flaws) if flaw is not None), None)

    async def problem(self, schema: JsonObject, text: str) -> str | None:
        """Return why `text` is not JSON that matches the schema; None if it is."""
        size = simple_size(schema)
        in_place = size is not None and len(text) <= MOST_CHARS and size * len(text) <= MOST_PAIRS
        if in_place and Conformance.for_schema(schema).accepts(text):
            return None
        # Explaining a mismatch takes much longer than finding that there is one.
        try:
            answer = await self._run(_Job(schemas=[msgspec.Raw(msgspec.json.encode(schema))], text=text))
        except JobFailed as error:
            raise OutputRejected(
                f"To check what the model said against the schema takes {self._limits_text()}. "
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

    def _limits_text(self) -> str:
        return f"more than {self._limits.seconds:g} seconds or {self._limits.megabytes} MB"


def answer_job(given: bytes) -> bytes:
    """Return what is wrong with each schema, or with the text; runs in the helper process."""
    job = msgspec.json.decode(given, type=_Job)
    schemas = [bytes(schema) for schema in job.schemas]
    if job.text is not None:
        return msgspec.json.encode([_compiled(schemas[0]).problem(job.text)])
    return msgspec.json.encode([schema_error(msgspec.json.decode(schema)) for schema in schemas])


@functools.lru_cache(MOST_COMPILED)
def _compiled(schema: bytes) -> Conformance:
    return Conformance.for_schema(msgspec.json.decode(schema))
