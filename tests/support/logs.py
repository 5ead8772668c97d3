"""The log lines of requests. They are written when a request is over, which its client may see a moment earlier."""

from collections.abc import Callable

from structlog.typing import EventDict

from tests.support.waiting import until


def request_lines(logs: list[EventDict]) -> list[EventDict]:
    """Return the lines of requests that are there now."""
    return [line for line in logs if line["event"] == "request"]


async def logged_requests(
    logs: list[EventDict], count: int, counts: Callable[[EventDict], bool] = lambda _: True
) -> list[EventDict]:
    """Return the lines of requests once there are so many; `logs` must still be captured."""
    await until(lambda: len(list(filter(counts, request_lines(logs)))) >= count)
    return list(filter(counts, request_lines(logs)))
