"""The socket that the gateway listens on: its own, or one that a service manager holds and passes on.

A socket that is passed on (`LISTEN_FDS`, the protocol of systemd's socket units) outlives this process: connections
wait in its queue until somebody accepts them, be it this gateway or its successor. So a restart refuses nobody
(docs/decisions/0032-restart-without-refusal.md).
"""

import errno
import ipaddress
import os
import socket
from dataclasses import dataclass

from turnbridge.cli.console import refuse

# Passed sockets begin at this descriptor.
FIRST_PASSED = 3
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket."""

    socket: socket.socket
    passed: bool = False
    """Whether it outlives this process."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    family: socket.AddressFamily
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine reaches it."""
        return ipaddress.ip_address(self.host).is_loopback


def passed_listener() -> Listener | None:
    """Return the socket that was passed to this process, if one was; processes below it are not told of it."""
    pid, count = os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS")
    for name in VARIABLES:
        os.environ.pop(name, None)
    if count is None or pid != str(os.getpid()):
        return None
    if count != "1":
        refuse(
            f"LISTEN_FDS is {count}: the gateway listens on one socket. Give it a socket unit with one ListenStream."
        )
    os.set_inheritable(FIRST_PASSED, False)
    try:
        given = socket.socket(fileno=FIRST_PASSED)
        listens = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        refuse(f"The socket of LISTEN_FDS cannot be used: {error.strerror}.")
    if given.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        given.close()
        refuse("The socket of LISTEN_FDS must be a TCP socket that listens.")
    return Listener(given, passed=True)


def address_of(listener: Listener) -> Address:
    """Return where a socket listens."""
    host, port = listener.socket.getsockname()[:2]
    return Address(listener.socket.family, host, port)


def resolved(host: str, port: int) -> Address:
    """Return the address to listen on; IPv4 is preferred, as by clients."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError):  # ValueError: not a valid host name.
        refuse(f"Cannot listen on {host}: there is no such address. Choose another one with --host.")
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return Address(family, str(address[0]), port)


def listen(address: Address) -> Listener:
    """Return a listening socket; clients can connect from here on, and wait until the server accepts them."""
    dual_stack = address.family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return Listener(
            socket.create_server((address.host, address.port), family=address.family, dualstack_ipv6=dual_stack)
        )
    except OSError as error:
        other = "port with --port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "address with --host"
        reason = os.strerror(error.errno) if error.errno else str(error)
        refuse(f"Cannot listen on {address.host}:{address.port}: {reason}. Choose another {other}.")
