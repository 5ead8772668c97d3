"""Tests of logs configure the log of the whole process, and leave it as it was."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from turnbridge.logs.setup import conceal

SERVER_LOGGERS = ("", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access")


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in SERVER_LOGGERS]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    conceal([])
    structlog.reset_defaults()
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
