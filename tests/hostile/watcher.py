"""Asks a server for `/healthz` again and again until stdin closes, then prints the longest wait in seconds.

A program of its own: in the test's process, building a large body would delay the measurement itself.
"""

import select
import sys
import time
from http.client import HTTPConnection

INTERVAL_S = 0.01
TIMEOUT_S = 60


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
    longest = wait_s(host, port)
    print("watching", flush=True)
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        longest = max(longest, wait_s(host, port))
    print(longest, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
