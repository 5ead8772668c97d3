"""Every promised behaviour, by area: `docs/compatibility.md` is written from it (`python -m tools.docs`)."""

from tests.compat.bounds import BOUNDS
from tests.compat.messages import CHAT_ANSWERS, ITEMS, RESPONSE_ANSWERS
from tests.compat.models import MEDIA, MODEL_NAMES, REASONING_ANSWERS
from tests.compat.operation import FAULTS, LIMITS, THREADS
from tests.compat.outcomes import FAILURES, USAGE
from tests.compat.requirement import Requirement
from tests.compat.service import INGRESS, SAFETY, START
from tests.compat.state import STATE
from tests.compat.streams import STREAMS
from tests.compat.tools import TOOLS
from tests.compat.wishes import PARAMETERS, STRUCTURED_ANSWERS

AREAS: dict[str, tuple[Requirement, ...]] = {
    "What the model sees": ITEMS,
    "Chat Completions": CHAT_ANSWERS,
    "Responses": RESPONSE_ANSWERS,
    "State": STATE,
    "Streaming": STREAMS,
    "Parameters": PARAMETERS,
    "Structured answers": STRUCTURED_ANSWERS,
    "Reasoning": REASONING_ANSWERS,
    "Images and files": MEDIA,
    "Tools": TOOLS,
    "Models": MODEL_NAMES,
    "Usage": USAGE,
    "Errors": FAILURES,
    "Threads": THREADS,
    "Limits": LIMITS,
    "Start and login": START,
    "Ingress": INGRESS,
    "Bounds": BOUNDS,
    "Safety": SAFETY,
    "Faults": FAULTS,
}
"""The title of each area, and what is promised there; ids begin with the area's own word."""

REQUIREMENTS = tuple(requirement for area in AREAS.values() for requirement in area)
