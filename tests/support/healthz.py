"""Asks a server for `/healthz` again and again until stdin closes, then prints as JSON how long the answers took.

A program of its own: in the process of the clients, building a large body would delay the measurement itself.
"""

import json
import select
import sys
import time
from http.client import HTTPConnection

INTERVAL_S = 0.01
TIMEOUT_S = 60
GREETING = b"watching\n"
"""What it prints once it measures."""


def wait_s(host: str, port: int) -> float:
    """Return how long one answer took, over a connection of its own."""
    began = time.monotonic()
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        if connection.getresponse().status != 200:
            raise SystemExit("The gateway is not healthy.")
    finally:
        connection.close()
    return time.monotonic() - began


def main(host: str, port: int) -> None:
    """Measure until stdin closes."""
    waits = [wait_s(host, port)]
    print(GREETING.decode(), end="", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        waits.append(wait_s(host, port))
    waits.sort()
    print(json.dumps({"asked": len(waits), "p99_s": waits[len(waits) * 99 // 100], "longest_s": waits[-1]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
