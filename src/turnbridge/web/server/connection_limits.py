"""How many connections there may be: in all, for each peer, and with regard to the descriptors of the process.

Codex, the store and fetched media need descriptors too. Without a bound, connections that cost a client nothing would
take all of them, and no app-server could be started any more.
"""

import contextlib
import resource
from collections import OrderedDict
from typing import Protocol

from turnbridge.web.server.peers import is_loopback, network_of

MOST_CONNECTIONS = 2048
"""A connection that has sent most of a head holds some 80 KB, so all of them hold 160 MB."""

LEAST_CONNECTIONS = 16
"""Served even where descriptors are so few that nothing is left for anybody else."""

RESERVED_DESCRIPTORS = 256
"""For everything that is not a connection. An app-server takes six, and ten of them may be there at once."""

MOST_DESCRIPTORS = 65_536
"""More are of no use here, and systems that promise any number refuse to give it."""

PEER_SHARE = 2
"""One peer may have one connection in so many. A peer on this machine may have all: a reverse proxy speaks for many."""

MOST_LINGERING = 64
"""Refused connections that are kept for a moment, so that their clients can read why; others are reset."""

MOST_PIPELINING = 64
"""Connections that may send further requests before they have their answer. Hardly any client does that."""


class Connection(Protocol):
    """A connection as its limits know it."""

    def evict(self) -> None:
        """Close the connection, on which no whole request is being served."""
        ...


class _Peer:
    def __init__(self) -> None:
        self.connections = 0
        self.idle: OrderedDict[Connection, None] = OrderedDict()


class ConnectionLimits:
    """Counts connections. At a limit, the connection that has been idle longest is closed in favour of a new one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_of_a_peer = max(1, most // PEER_SHARE)
        self.refused = 0
        """Connections that were not admitted since this was last set to 0."""
        self.lingering: set[Connection] = set()
        self.pipelining: set[Connection] = set()
        self._peers: dict[str, _Peer] = {}
        self._admitted: dict[Connection, _Peer] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a new connection, and tell whether it may stay."""
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
        """Note that this connection has a whole request that is being served."""
        if (peer := self._admitted.get(connection)) is not None:
            self._idle.pop(connection, None)
            peer.idle.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Note that this connection waits from now on for a request, or for the rest of one."""
        if (peer := self._admitted.get(connection)) is not None:
            for idle in (self._idle, peer.idle):
                idle[connection] = None
                idle.move_to_end(connection)

    def release(self, connection: Connection) -> None:
        """Forget a connection, whether it was admitted or not."""
        self.lingering.discard(connection)
        self.pipelining.discard(connection)
        self.mark_busy(connection)
        if (peer := self._admitted.pop(connection, None)) is not None:
            peer.connections -= 1
            self._forget_peers()

    def _most_of(self, address: str) -> int:
        return self.most if not address or is_loopback(address) else self.most_of_a_peer

    def _add(self, connection: Connection, peer: _Peer) -> None:
        self._admitted[connection] = peer
        peer.connections += 1
        self.mark_idle(connection)

    def _forget_peers(self) -> None:
        """Drop the peers that have no connection; now and then, since a peer that comes once comes again."""
        if len(self._peers) > 2 * self.most:
            self._peers = {network: peer for network, peer in self._peers.items() if peer.connections}


def raise_descriptor_limit() -> None:
    """Let the process have as many descriptors as it may; many systems give 1,024 unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Return how many descriptors the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)


def connections_for(descriptors: int, *, wanted: int) -> int:
    """Return how many connections there may be, so that descriptors are left for everything else."""
    return max(LEAST_CONNECTIONS, min(wanted, descriptors - RESERVED_DESCRIPTORS))
