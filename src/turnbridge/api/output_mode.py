"""How calls are shown to a client: as the API has it, or in the text, for plugins that look for them there."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal, Protocol, TypeAlias

from starlette.requests import Request

from turnbridge.api.shared.obsidian_xml import calls_as_text
from turnbridge.engine.turns import Served
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.events import TurnEvent
from turnbridge.turn.request import TurnRequest
from turnbridge.turn.values import replace
from turnbridge.web.http import header_value

OutputMode: TypeAlias = Literal["openai-json", "obsidian-xml"]

MODE_HEADER = "x-proxy-output-mode"
# The names that clients of older gateways use.
MODES: dict[str, OutputMode] = {
    "openai-json": "openai-json",
    "openai_json": "openai-json",
    "openai": "openai-json",
    "obsidian-xml": "obsidian-xml",
    "obsidian_xml": "obsidian-xml",
    "obsidian": "obsidian-xml",
}


class Runner(Protocol):
    """Runs turns."""

    def run(self, request: TurnRequest, served: Served) -> AsyncGenerator[Sequence[TurnEvent], None]:
        """Yield the events of a turn in batches, the last of which ends in a `Terminal`."""
        ...


class CallsInText:
    """Runs turns whose calls are told in the text; their outputs come as text too, so nothing waits for them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, request: TurnRequest, served: Served) -> AsyncGenerator[Sequence[TurnEvent], None]:
        """Yield the events of a turn without a call among them."""
        async with aclosing(self._runner.run(replace(request, awaits_outputs=False), served)) as batches:
            async for batch in batches:
                yield calls_as_text(batch)


def output_mode(request: Request, usual: OutputMode) -> OutputMode:
    """Return the mode that a request asks for."""
    header = header_value(request.scope, MODE_HEADER.encode())
    if header is None:
        return usual
    asked = header.decode("latin-1")
    mode = MODES.get(asked.strip().lower())
    if mode is None:
        raise InvalidRequest(
            f"Invalid value for the header '{MODE_HEADER}': '{asked}'. Supported values are: 'openai-json', "
            "'obsidian-xml'.",
            code="invalid_value",
            param=MODE_HEADER,
        )
    return mode
