"""Limits of connections: in total, per peer, and by the file descriptors of the process.

Codex, the store and fetched media need descriptors too. Without a limit, idle connections could exhaust them, and no
app-server could be started.
"""

import contextlib
import resource
from collections import OrderedDict
from typing import Protocol

from turnbridge.web.server.peers import is_loopback, network_of

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


class _Peer:
    def __init__(self) -> None:
        self.connections = 0
        self.idle: OrderedDict[Connection, None] = OrderedDict()


class ConnectionLimits:
    """Counts connections. At a limit, a new connection evicts the one that has been idle longest (LRU)."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_of_a_peer = max(1, most // PEER_SHARE)
        self.refused = 0
        """Connections that were not admitted; the server resets it after logging."""
        self.lingering: set[Connection] = set()
        self.pipelining: set[Connection] = set()
        self._peers: dict[str, _Peer] = {}
        self._admitted: dict[Connection, _Peer] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a new connection; False if it must be refused."""
        peer = self._peers.setdefault(network_of(address), _Peer())
        if peer.connections >= self._most_of(address):
            oldest = next(iter(peer.idle), None)
        elif len(self._admitted) >= self.most:
            oldest = next(iter(self._idle), None)
        else:
            self._add(connection, peer)
            return True
        if oldest is None:
            self.refused += 1
            return False
        self.release(oldest)
        oldest.evict()
        self._add(connection, peer)
        return True

    def mark_busy(self, connection: Connection) -> None:
        """Exempt a connection with a complete request from eviction."""
        if (peer := self._admitted.get(connection)) is not None:
            self._idle.pop(connection, None)
            peer.idle.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Make a connection that waits for a request, or for the rest of one, the last to be evicted."""
        if (peer := self._admitted.get(connection)) is not None:
            for idle in (self._idle, peer.idle):
                idle[connection] = None
                idle.move_to_end(connection)

    def release(self, connection: Connection) -> None:
        self.lingering.discard(connection)
        self.pipelining.discard(connection)
        self.mark_busy(connection)
        if (peer := self._admitted.pop(connection, None)) is not None:
            peer.connections -= 1
            self._drop_peers()

    def _most_of(self, address: str) -> int:
        return self.most if not address or is_loopback(address) else self.most_of_a_peer

    def _add(self, connection: Connection, peer: _Peer) -> None:
        self._admitted[connection] = peer
        peer.connections += 1
        self.mark_idle(connection)

    def _drop_peers(self) -> None:
        """Drop peers without connections, but not at once: most peers reconnect."""
        if len(self._peers) > 2 * self.most:
            self._peers = {network: peer for network, peer in self._peers.items() if peer.connections}


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
