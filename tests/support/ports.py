"""Ports for programs that are told where to listen."""

import random
import socket

# Below those that Linux and macOS give to connections and to whoever asks for any: none is taken before the program
# listens, nor while it is started again.
PORTS = range(20_000, 30_000)
TRIES = 100
# Not the usual generator, which some tests set to the same numbers.
_chance = random.SystemRandom()


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    for port in _chance.sample(PORTS, TRIES):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError(f"None of {TRIES} ports is free.")
