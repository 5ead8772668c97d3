"""Promises about the wire trace."""

from tests.compat.promise import OURS, Promise

TRACE = (
    Promise(
        id="trace.both-wires",
        sentence="The trace has every message of a request, with the client and with Codex, in order and unchanged.",
        source=OURS,
    ),
    Promise(
        id="trace.attribution",
        sentence="Each line names its request, process and thread, also where requests run at the same time or share a "
        "thread.",
        source=OURS,
    ),
    Promise(
        id="trace.redaction",
        sentence="The trace holds no key of the gateway and no secret of a client; its file has mode 0600.",
        source=OURS,
    ),
    Promise(
        id="trace.disk",
        sentence="A trace that cannot be written breaks no request; lost lines are counted.",
        source=OURS,
    ),
    Promise(
        id="trace.off",
        sentence=(
            "Without `PROXY_LOG_PROTO` there is no trace, and it costs nothing; with it, no request waits for it long."
        ),
        source=OURS,
    ),
)
