"""GET over https, restricted to public hosts.

The host name is resolved once per request, all its addresses are checked, and the connection goes to a checked address,
so DNS rebinding has no effect. TLS verifies the host name. Each redirect is checked in the same way.
"""

import asyncio
import re
import ssl
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

import httpcore2

from turnbridge.outbound.guard import (
    CONNECT_SECONDS,
    AddressCheck,
    GuardedBackend,
    HostNotAllowed,
    HostSilent,
    Resolver,
    is_public,
    resolve,
)
from turnbridge.turn.images import IMAGE_SIZE_LIMIT

# The only allowed port: internal services listen on others.
HTTPS_PORT = 443
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = [(b"accept", b"*/*"), (b"accept-encoding", b"identity"), (b"user-agent", b"turnbridge")]
_INVALID_URL = "It, or what it redirects to, is not a valid URL. Correct it."
# A name in ASCII, an IPv4 address, or an IPv6 address without brackets.
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
# Characters that are not escaped; `%` is one, so that nothing is escaped twice.
_URL_SAFE = "%/:?@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Limits of one URL. The engine limits the URLs of a request."""

    size: int = IMAGE_SIZE_LIMIT
    seconds: float = 10.0
    """For everything: name resolution, connections, redirects and the body."""
    redirects: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The body and content type of a response."""

    data: bytes
    content_type: str | None


class FetchFailed(Exception):
    """The URL cannot be fetched; the message says why, and what to do, without naming an address."""


class FetchTooLarge(FetchFailed):
    """The body exceeds the limit."""


class GuardedFetcher:
    """Fetches https URLs from public hosts, without the proxies of the environment."""

    def __init__(
        self,
        *,
        limits: FetchLimits | None = None,
        resolver: Resolver = resolve,
        allowed: AddressCheck = is_public,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits or FetchLimits()
        self._backend = GuardedBackend(resolver, allowed)
        self._ssl_context = ssl_context
        self._opened: httpcore2.AsyncConnectionPool | None = None

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.aclose()

    async def get(self, url: str) -> Fetched:
        """Return the response to a URL, within the limits."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(url)
        except HostNotAllowed:
            problem = "Its host is not on the public internet. Use a public host, or send the content itself."
            raise FetchFailed(problem) from None
        except HostSilent:
            raise FetchFailed("Its host does not answer. Check the URL, or send the content itself.") from None
        except (TimeoutError, httpcore2.TimeoutException) as error:
            limit = f"The limit is {self._limits.seconds:g} seconds"
            raise FetchFailed(f"Its host is too slow. {limit}: send the content itself.") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            # The pool drops the cause, but the original error is in `args`.
            if isinstance(error.args[0] if error.args else None, ssl.SSLCertVerificationError):
                raise FetchFailed("The certificate of its host is not valid. Use another host.") from error
            raise FetchFailed("The connection failed. Try again, or send the content itself.") from error

    async def _pool(self) -> httpcore2.AsyncConnectionPool:
        """Return the connection pool, made on first use: loading the system's certificates takes 40 ms."""
        if self._opened is None:
            ssl_context = self._ssl_context or await asyncio.to_thread(httpcore2.default_ssl_context)
            # A concurrent call may have made it in between.
            self._opened = self._opened or httpcore2.AsyncConnectionPool(
                ssl_context=ssl_context,
                max_connections=None,
                # Connections are not reused: each request resolves and checks its host.
                max_keepalive_connections=0,
                network_backend=self._backend,
            )
        return self._opened

    async def _follow(self, url: str) -> Fetched:
        for _ in range(self._limits.redirects + 1):
            answer = await self._request(url)
            if isinstance(answer, Fetched):
                return answer
            url = answer
        raise FetchFailed(f"It redirects more than {self._limits.redirects} times. Use the final URL.")

    async def _request(self, url: str) -> Fetched | str:
        """Return the response, or the URL of a redirect."""
        target = parse_url(url)
        host = b"[%b]" % target.host if b":" in target.host else target.host
        pool = await self._pool()
        async with pool.stream(
            "GET", target, headers=[(b"host", host), *_HEADERS], extensions={"timeout": {"connect": CONNECT_SECONDS}}
        ) as response:
            headers = {name.lower(): value.decode("utf-8", "replace") for name, value in response.headers}
            if response.status in _REDIRECTS and b"location" in headers:
                return _joined(url, headers[b"location"])
            if response.status != 200:
                raise FetchFailed(f"Its host answered with status {response.status}. Check the URL.")
            if headers.get(b"content-encoding", "identity").lower() != "identity":
                raise FetchFailed("Its host insists on compressing the answer. Send the content itself.")
            return Fetched(data=await self._body(response), content_type=headers.get(b"content-type"))

    async def _body(self, response: httpcore2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > self._limits.size:
                raise FetchTooLarge(f"It leads to more than {self._limits.size / 2**20:g} MB. Send less.")
        return bytes(body)


def parse_url(url: str) -> httpcore2.URL:
    """Return the parsed URL; its host is the one that is resolved, checked and verified."""
    try:
        # `urlsplit` silently drops line breaks, and two parsers must not see two hosts.
        if not url.isprintable():
            raise FetchFailed(_INVALID_URL)
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode("ascii")
        target = quote(parts.path or "/", safe=_URL_SAFE)
        if parts.query:
            target += "?" + quote(parts.query, safe=_URL_SAFE)
    except ValueError as error:
        raise FetchFailed(_INVALID_URL) from error
    if parts.scheme != "https":
        raise FetchFailed("Only https URLs are fetched. Use https, or send the content itself.")
    if "@" in parts.netloc:
        raise FetchFailed("A user name or password in a URL is not accepted. Remove it.")
    if not _HOST.fullmatch(host):
        raise FetchFailed(_INVALID_URL)
    if port not in (None, HTTPS_PORT):
        raise FetchFailed(f"Only port {HTTPS_PORT} is reached. Use it, or send the content itself.")
    return httpcore2.URL(scheme="https", host=host, port=HTTPS_PORT, target=target)


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise FetchFailed(_INVALID_URL) from error
