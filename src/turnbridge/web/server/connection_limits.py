"""Limits of connections: in total, per peer, and by the file descriptors of the process.

Codex, the store and fetched media need descriptors too. Without a limit, idle connections could exhaust them, and no
app-server could be started.
"""

import contextlib
import resource
from collections import Counter, OrderedDict
from typing import Protocol

from turnbridge.web.http import is_loopback, network_of

# A connection with an unfinished head holds some 80 KB, so all of them hold 160 MB.
MOST_CONNECTIONS = 2048
# Served even if that leaves no descriptors for anything else.
LEAST_CONNECTIONS = 16
# For everything that is not a connection. An app-server takes six, and up to ten run at once.
RESERVED_DESCRIPTORS = 256
# More are of no use, and systems without a limit may still refuse very high numbers.
MOST_DESCRIPTORS = 65_536
# A peer may have half of the connections. Loopback may have all, since a reverse proxy serves many clients.
PEER_SHARE = 2
# Refused connections that stay open until their clients have read the error; further ones are reset.
MOST_LINGERING = 64
# Connections that may have buffered pipelined requests. Hardly any client pipelines.
MOST_PIPELINING = 64


class Connection(Protocol):
    """The interface of a connection."""

    def evict(self) -> None:
        """Close the connection, which is idle."""


class ConnectionLimits:
    """Counts connections. At a limit, a new connection evicts the one that has been idle longest (LRU)."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.refused = 0
        """Connections that were not admitted; the server resets it after logging."""
        self.lingering: set[Connection] = set()
        self.pipelining: set[Connection] = set()
        self.held: dict[Connection, int] = {}
        """The WebSockets, and how many bytes of messages each holds."""
        self._peers: Counter[str] = Counter()
        self._admitted: dict[Connection, str] = {}
        """Each connection, and the network of its peer."""
        self._idle: OrderedDict[Connection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a new connection; False if it must be refused."""
        network, trusted = network_of(address), not address or is_loopback(address)
        of_peer = self._peers[network] >= (self.most if trusted else max(1, self.most // PEER_SHARE))
        if of_peer or len(self._admitted) >= self.most:
            # Only at a limit, so that a search among all of them will do.
            oldest = next((idle for idle in self._idle if not of_peer or self._admitted[idle] == network), None)
            if oldest is None:
                self.refused += 1
                return False
            self.release(oldest)
            oldest.evict()
        self._admitted[connection] = network
        self._peers[network] += 1
        self.mark_idle(connection)
        return True

    def mark_busy(self, connection: Connection) -> None:
        """Exempt a connection with a complete request from eviction."""
        self._idle.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Make a connection that waits for a request, or for the rest of one, the last to be evicted."""
        if connection in self._admitted:
            self._idle[connection] = None
            self._idle.move_to_end(connection)

    def hand_over(self, connection: Connection, successor: Connection) -> None:
        """Give the place of a connection to the one that it has become."""
        if (network := self._admitted.pop(connection, None)) is not None:
            self.mark_busy(connection)
            self.pipelining.discard(connection)
            self._admitted[successor] = network

    def release(self, connection: Connection) -> None:
        self.lingering.discard(connection)
        self.pipelining.discard(connection)
        self.mark_busy(connection)
        if (network := self._admitted.pop(connection, None)) is not None:
            self._peers[network] -= 1
            if not self._peers[network]:
                del self._peers[network]


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors, which is 1,024 on many systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_for(descriptors: int, *, wanted: int) -> int:
    """Return the maximum of connections that leaves the reserved descriptors free."""
    return max(LEAST_CONNECTIONS, min(wanted, descriptors - RESERVED_DESCRIPTORS))


def allowed_connections(wanted: int) -> int:
    """Return how many of the wanted connections the limit of file descriptors allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_for(MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft, wanted=wanted)
