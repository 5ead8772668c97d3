"""Promises about what one client can do to the gateway, and to the others."""

from tests.compat.promise import OURS, Promise

BOUNDS = (
    Promise(
        id="bounds.heads",
        sentence="A request head above 64 KB or 100 headers is a 431, and its connection is closed.",
        source=OURS,
    ),
    Promise(
        id="bounds.connections",
        sentence="Connections are bounded in all and per address; idle ones are closed first. Codex can still start.",
        source=OURS,
    ),
    Promise(
        id="bounds.uploads",
        sentence="Bodies that are being received share 256 MB; no key's unfinished bodies cost another key its own.",
        source=OURS,
    ),
    Promise(
        id="bounds.key-guessing",
        sentence="After 20 wrong keys in a minute an address gets 429; keys that were right from it before still pass.",
        source=OURS,
    ),
    Promise(
        id="bounds.key-length",
        sentence="Off loopback a key or token of fewer than 16 characters is refused at the start.",
        source=OURS,
    ),
    Promise(
        id="bounds.log-lines",
        sentence=(
            "Lines of the log and the trace are bounded, and hold nothing that ends a line or controls a terminal."
        ),
        source=OURS,
    ),
    Promise(
        id="bounds.files",
        sentence="A key stores at most 1,000 files in a quarter of the store; no upload disturbs another key.",
        source=OURS,
    ),
)
