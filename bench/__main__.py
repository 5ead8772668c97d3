"""`make bench`: runs the parts one after another, prints what they found, and writes it to bench/RESULTS.md."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

import uvloop

from bench.parts import agents, apis, bare, chat, codex, footprint, growth, litellm, memory, page, scale, sockets
from bench.proxies import prepare
from bench.report import RESULTS, Section, goals_table, save, write_results


class Part(Protocol):
    """Measures one thing."""

    def __call__(self, directory: Path, *, quick: bool) -> Awaitable[Section]:
        """Return what was measured; the directory is for whatever is needed meanwhile."""
        ...


PARTS: dict[str, Part] = {
    "codex": codex.run,
    "websocket": codex.run_websocket,
    "litellm": litellm.run,
    "bare": bare.run,
    "apis": apis.run,
    "agents": agents.run,
    "page": page.run,
    "memory": memory.run,
    "footprint": footprint.run,
    "growth": growth.run,
    "chat": chat.run,
    "sockets": sockets.run,
    "scale": scale.run,
}
# A part takes up to five minutes, and up to eight on a slow day; one that takes this long hangs.
PART_TIMEOUT_S = 900.0
# Where these are set, Codex reads other certificates for each turn than on most machines, or reads them twice.
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


async def measure(name: str, *, quick: bool) -> Section:
    """Run one part, within its time."""
    with tempfile.TemporaryDirectory(prefix=f"turnbridge-bench-{name}-") as directory:
        async with asyncio.timeout(PART_TIMEOUT_S):
            return await PARTS[name](Path(directory), quick=quick)


def main() -> int:
    """Run the chosen parts; the results of the others stay as they are."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="a few requests only, to see that it runs; nothing is kept"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; choose of {', '.join(PARTS)}")
    names = chosen.parts or list(PARTS)
    if "litellm" in names:
        prepare()
    for variable in CERTIFICATE_VARIABLES:
        os.environ.pop(variable, None)
    load = os.getloadavg()[0]
    for name in names:
        began = time.monotonic()
        section = uvloop.run(measure(name, quick=chosen.quick))
        print("\n".join(["", f"## {section.title}", "", *section.lines, "", *goals_table(section.goals)]))
        print(f"\n{name}: {time.monotonic() - began:.0f} s", flush=True)
        if not chosen.quick:
            save(name, section, load=load)
            write_results(list(PARTS))
            print(f"Written to {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
