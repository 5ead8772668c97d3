"""The bounds on the page of limits are those of the code, and stand where it says."""

import re

import pytest

from tools.docs import ROOT
from turnbridge.engine import admission, frame_log, kept_threads, media_items, structured_output, tool_serving
from turnbridge.mcp import exchange, servers
from turnbridge.turn import images

PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "turnbridge"

MB = 2**20
MILLION = 1_000_000

BOUNDS = {
    "turns at once; requests that wait; for how long": f"and {admission.MOST_WAITING_CHARACTERS // MB} MB;",
    "turns that wait for a client's tools": (
        f"{kept_threads.MOST_PARKED}, {kept_threads.MOST_PARKED_CHARACTERS // MB} MB of model output,"
    ),
    "what models said with their calls": (
        f"{kept_threads.MOST_REMEMBERED:,} times, {kept_threads.MOST_REMEMBERED_CHARACTERS // MB} MB"
    ),
    "data on its way to one reader of a background response or a repeated answer": (
        f"{frame_log.PIECE_BYTES // 1024} KB"
    ),
    "images and files of a request": (
        f"{media_items.LOADED_LIMIT // MB} MB, {media_items.TEXT_LIMIT // MB} MB of text, "
        f"{media_items.CONCURRENT_LOADS} at once, {media_items.LOAD_TIMEOUT_S:g} s"
    ),
    "an image": (
        f"{images.IMAGE_SIZE_LIMIT // MB} MB, {images.MAX_PIXELS // MILLION} million pixels; "
        f"{images.MAX_TOTAL_PIXELS // MILLION:,} million in the data URLs of a request"
    ),
    "tools of an MCP server; an answer of it; listing": (
        f"{servers.MOST_TOOLS}; {exchange.MOST_BYTES // MB} MB; {servers.LIST_SECONDS:g} s"
    ),
    "calls of MCP servers; at once; one call": (
        f"{tool_serving.MOST_CALLS}; {tool_serving.CALLS_AT_ONCE}; {servers.CALL_SECONDS:g} s"
    ),
    "levels of a structured answer": f"{structured_output.MAX_DEPTH}",
}


def rows() -> dict[str, list[str]]:
    """Return the cells of each row that has four of them, by the first one."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return {cells[0]: cells for cells in lines if len(cells) == 4 and cells[0] != "bound"}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_on_the_page_is_the_one_of_the_code(bound: str) -> None:
    assert BOUNDS[bound] in rows()[bound][1]


def test_every_bound_of_the_page_stands_in_a_module_that_exists() -> None:
    named = {name for cells in rows().values() for name in re.findall(r"`([^`]+)`", cells[2])}
    assert len(named) > 20
    assert {name for name in named if not list(SOURCE.glob(name)) and not (SOURCE / f"{name}.py").exists()} == set()
