"""How calls are shown to a client: as its API has it, or in the text, for plugins that look for them there."""

from typing import Literal, TypeAlias

from starlette.types import Scope

from turnbridge.turn.errors import InvalidRequest
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


def output_mode(scope: Scope, usual: OutputMode) -> OutputMode:
    """Return the mode that a request asks for."""
    header = header_value(scope, MODE_HEADER.encode())
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
