"""Where the trace is, and how much of each body it holds."""

from pathlib import Path
from typing import Any

import pytest

from turnbridge.settings.fields import load_settings


@pytest.mark.parametrize(
    ("chosen", "path"),
    [
        ({"PROXY_DATA_DIR": "/data"}, Path("/data/trace/wire.ndjson")),
        ({"PROXY_DATA_DIR": "/data", "PROTO_LOG_PATH": "/var/log/wire"}, Path("/var/log/wire")),
        ({"PROTO_LOG_PATH": "~/wire"}, Path.home() / "wire"),
    ],
)
def test_the_trace_is_in_the_data_directory_unless_it_is_told_otherwise(chosen: dict[str, Any], path: Path) -> None:
    assert load_settings(**chosen).trace_path == path


def test_nothing_is_traced_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROXY_LOG_PROTO", "PROXY_TRACE_BODY_LIMIT", "PROXY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    settings = load_settings()
    assert (settings.log_proto, settings.trace_body_limit) == (False, 65536)
