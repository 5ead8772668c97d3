"""What a URL leads to is fetched within limits and never from an internal host."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import IPv4Address, ip_address

import pytest
import trustme

from tests.media.no_helpers import NO_HELPERS
from turnbridge.media.fetch import FetchLimits, GuardedFetcher
from turnbridge.media.loader import HttpMediaLoader
from turnbridge.outbound.guard import Endpoint, IpAddress, is_public
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import FilePart

pytestmark = pytest.mark.anyio

LOOPBACK = IPv4Address("127.0.0.1")
PRIVATE = IPv4Address("10.0.0.1")
PUBLIC_V6 = "2606:4700::1111"
HANGS = 9.0
"""Seconds after which a refusal did not come from a limit of the test: less than the default limit."""
PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0 pixels",
    "image/gif": b"GIF89a\x01\x00\x01\x00 pixels",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP pixels",
}
INVALID = "It, or what it redirects to, is not a valid URL. Correct it."
ONLY_HTTPS = "Only https URLs are fetched. Use https, or send the content itself."
ONLY_443 = "Only port 443 is reached. Use it, or send the content itself."
NO_USER = "A user name or password in a URL is not accepted. Remove it."
NOT_PUBLIC = "Its host is not on the public internet. Use a public host, or send the content itself."

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reply(body: bytes, *headers: str, status: str = "200 OK") -> Answer:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""])

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


def redirect(location: str) -> Answer:
    return reply(b"", f"location: {location}", status="302 Found")


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while True:
            writer.write(b"400\r\n" + bytes(0x400) + b"\r\n")
            await writer.drain()
            # While asyncio's TLS has not heard that the other side is gone, neither call waits or fails.
            await asyncio.sleep(0)


class Site:
    """A TLS server on loopback with a certificate for some hosts, and the name service that leads to it."""

    here: Endpoint

    def __init__(self, trust: ssl.SSLContext) -> None:
        self.trust = trust
        self.answers: dict[str, Answer] = {}
        self.heads: list[list[str]] = []
        self.connections = 0
        self.names: dict[str, list[Sequence[Endpoint]]] = {}
        self.resolved: list[tuple[str, int]] = []

    async def resolve(self, host: str, port: int) -> Sequence[Endpoint]:
        self.resolved.append((host, port))
        if host not in self.names:
            return [self.here]
        return self.names[host].pop(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.heads.append(head[:-2])
        await self.answers[head[0].split()[1]](reader, writer)
        writer.close()

    def loader(self, limits: FetchLimits | None = None) -> HttpMediaLoader:
        fetcher = GuardedFetcher(
            limits=limits, resolver=self.resolve, allowed=loopback_or_public, ssl_context=self.trust
        )
        return HttpMediaLoader(NO_HELPERS, fetcher)

    async def refusal(self, url: str, limits: FetchLimits | None = None) -> tuple[str | None, str]:
        """Return the code of the error and what follows the fixed beginning of its message."""
        return await refusal(self.loader(limits), url)


def loopback_or_public(address: IpAddress) -> bool:
    return address == LOOPBACK or is_public(address)


async def refusal(loader: HttpMediaLoader, url: str) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as caught:
        async with asyncio.timeout(HANGS):
            await loader.image(url, param="input[0].content[1]")
    await loader.aclose()
    assert caught.value.param == "input[0].content[1]"
    return caught.value.error_code, caught.value.message.removeprefix("The image URL cannot be used. ")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def site(authority: trustme.CA) -> AsyncIterator[Site]:
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("images.example", "other.example", PUBLIC_V6).configure_cert(context)
    site = Site(trust)
    server = await asyncio.start_server(site.serve, str(LOOPBACK), 0, ssl=context)
    site.here = Endpoint(LOOPBACK, server.sockets[0].getsockname()[1])
    yield site
    server.close()


@pytest.mark.parametrize("mime_type", IMAGES)
async def test_an_image_becomes_a_data_url_with_the_type_of_its_bytes(site: Site, mime_type: str) -> None:
    site.answers["/a"] = reply(IMAGES[mime_type], "content-type: text/html")
    url, _ = await site.loader().image("https://images.example/a", param="p")
    assert url == f"data:{mime_type};base64,{base64.b64encode(IMAGES[mime_type]).decode()}"


@pytest.mark.promise("media.image.pixels")
async def test_a_fetched_image_with_too_many_pixels_is_refused(site: Site) -> None:
    site.answers["/a"] = reply(b"GIF89a\xff\xff\xff\xff")
    code, message = await site.refusal("https://images.example/a")
    assert (code, "50 million pixels" in message) == ("image_too_large", True)


async def test_the_request_names_the_host_and_asks_for_plain_bytes(site: Site) -> None:
    site.answers["/a%20b?c=d"] = reply(PNG)
    await site.loader().image("https://Images.example/a b?c=d#e", param="p")
    assert site.heads == [
        [
            "GET /a%20b?c=d HTTP/1.1",
            "host: images.example",
            "accept: */*",
            "accept-encoding: identity",
            "user-agent: turnbridge",
        ]
    ]
    assert site.resolved == [("images.example", 443)]


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("IMAGES.example:443", "images.example"),
        (f"[{PUBLIC_V6}]", f"[{PUBLIC_V6}]"),
        ("\uff49mages.example", "images.example"),
    ],
)
async def test_a_host_may_be_written_in_other_ways(site: Site, host: str, asked: str) -> None:
    site.answers["/%C3%BC/%20?q=%C3%BC%26"] = reply(PNG)
    await site.loader().image(f"https://{host}/ü/%20?q=ü%26", param="p")
    assert site.heads[0][1] == f"host: {asked}"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://images.example/a", ONLY_HTTPS),
        ("ftp://images.example/a", ONLY_HTTPS),
        ("file:///etc/passwd", ONLY_HTTPS),
        ("//images.example/a", ONLY_HTTPS),
        ("", ONLY_HTTPS),
        ("https://u:p@images.example/", NO_USER),
        ("https://@images.example/", NO_USER),
        ("https://images.example\\@other.example/", NO_USER),
        ("https://images.example:8443/", ONLY_443),
        ("https://images.example:0/", ONLY_443),
        ("https://images.example:x/", INVALID),
        ("https://images.example:99999/", INVALID),
        ("https://images.example/\n", INVALID),
        ("https://images.ex\tample/", INVALID),
        ("https://images.example\\other.example/", INVALID),
        ("https://images example/", INVALID),
        ("https://images%2eexample/", INVALID),
        ("https://images..example/", INVALID),
        (f"https://{'i' * 64}.example/", INVALID),
        ("https://[::1/", INVALID),
        ("https:///a", INVALID),
        ("https:images.example/a", INVALID),
        ("https://images.example/\ud800", INVALID),
    ],
)
async def test_other_urls_are_refused_before_any_name_is_resolved(site: Site, url: str, why: str) -> None:
    assert await site.refusal(url) == ("invalid_image_url", why)
    assert site.resolved == []


@pytest.mark.promise("safety.addresses")
@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
    ],
)
async def test_by_default_internal_hosts_are_refused_however_they_are_written(host: str) -> None:
    assert await refusal(HttpMediaLoader(NO_HELPERS), f"https://{host}/a") == ("invalid_image_url", NOT_PUBLIC)


@pytest.mark.promise("safety.addresses")
async def test_one_internal_address_among_public_ones_refuses_the_host(site: Site) -> None:
    site.names["images.example"] = [[site.here, Endpoint(PRIVATE, 443)]]
    assert await site.refusal("https://images.example/a") == ("invalid_image_url", NOT_PUBLIC)
    assert site.connections == 0


@pytest.mark.parametrize("failure", [OSError("no such host"), UnicodeError("label too long")])
async def test_an_unknown_host_is_told_like_an_internal_one(failure: Exception) -> None:
    async def resolver(_: str, __: int) -> Sequence[Endpoint]:
        raise failure

    loader = HttpMediaLoader(NO_HELPERS, GuardedFetcher(resolver=resolver))
    assert await refusal(loader, "https://images.example/a") == ("invalid_image_url", NOT_PUBLIC)


async def test_a_host_without_addresses_is_told_like_an_internal_one(site: Site) -> None:
    site.names["images.example"] = [[]]
    assert await site.refusal("https://images.example/a") == ("invalid_image_url", NOT_PUBLIC)


@pytest.mark.promise("safety.redirects")
async def test_a_name_that_changes_its_address_is_not_asked_a_second_time(site: Site) -> None:
    site.answers["/a"] = reply(PNG)
    site.names["images.example"] = [[site.here], [Endpoint(PRIVATE, 443)]]
    await site.loader().image("https://images.example/a", param="p")
    assert site.resolved == [("images.example", 443)]


@pytest.mark.promise("safety.redirects")
async def test_a_redirect_to_the_same_host_checks_it_anew(site: Site) -> None:
    site.answers["/a"] = redirect("/b")
    site.answers["/b"] = reply(PNG)
    site.names["images.example"] = [[site.here], [Endpoint(PRIVATE, 443)]]
    assert await site.refusal("https://images.example/a") == ("invalid_image_url", NOT_PUBLIC)
    assert site.connections == 1


async def test_the_next_address_is_used_when_one_does_not_answer(site: Site) -> None:
    site.answers["/a"] = reply(PNG)
    site.names["images.example"] = [[await _closed_endpoint(), site.here]]
    await site.loader().image("https://images.example/a", param="p")
    assert site.connections == 1


async def test_a_host_that_does_not_answer_is_told(site: Site) -> None:
    site.names["images.example"] = [[await _closed_endpoint()]]
    assert await site.refusal("https://images.example/a") == (
        "invalid_image_url",
        "Its host does not answer. Check the URL, or send the content itself.",
    )


@pytest.mark.parametrize("location", ["/b", "b", "//other.example/b", "https://other.example:443/b", "/a/../b"])
async def test_a_redirect_is_followed(site: Site, location: str) -> None:
    site.answers["/a"] = redirect(location)
    site.answers["/b"] = reply(PNG)
    await site.loader().image("https://images.example/a", param="p")
    assert site.connections == 2


@pytest.mark.promise("safety.redirects")
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("https://internal.example/", NOT_PUBLIC),
        ("https://169.254.169.254/latest/meta-data", NOT_PUBLIC),
        ("//[::ffff:10.0.0.1]/", NOT_PUBLIC),
        ("http://images.example/b", ONLY_HTTPS),
        ("file:///etc/passwd", ONLY_HTTPS),
        ("https://u@images.example/b", NO_USER),
        ("https://images.example:8443/b", ONLY_443),
        ("https://[", INVALID),
    ],
)
async def test_a_redirect_is_checked_like_the_first_url(site: Site, location: str, why: str) -> None:
    site.names["internal.example"] = [[Endpoint(PRIVATE, 443)]]
    site.names["169.254.169.254"] = [[Endpoint(ip_address("169.254.169.254"), 443)]]
    site.names["::ffff:10.0.0.1"] = [[Endpoint(ip_address("::ffff:10.0.0.1"), 443)]]
    site.answers["/a"] = redirect(location)
    assert await site.refusal("https://images.example/a") == ("invalid_image_url", why)
    assert site.connections == 1


@pytest.mark.promise("media.fetch.bounds")
async def test_three_redirects_are_followed_and_a_fourth_is_not(site: Site) -> None:
    for step in range(4):
        site.answers[f"/{step}"] = redirect(f"/{step + 1}")
    site.answers["/4"] = reply(PNG)
    await site.loader().image("https://images.example/1", param="p")
    assert await site.refusal("https://images.example/0") == (
        "invalid_image_url",
        "It redirects more than 3 times. Use the final URL.",
    )


@pytest.mark.promise("media.fetch.bounds")
async def test_an_image_of_the_largest_size_is_taken_and_one_byte_more_is_not(site: Site) -> None:
    site.answers["/a"] = reply(PNG)
    await site.loader(FetchLimits(size=len(PNG))).image("https://images.example/a", param="p")
    code, _ = await site.refusal("https://images.example/a", FetchLimits(size=len(PNG) - 1))
    assert code == "image_too_large"


@pytest.mark.promise("media.fetch.bounds")
async def test_a_body_without_an_announced_length_ends_at_the_limit(site: Site) -> None:
    site.answers["/a"] = endless
    assert await site.refusal("https://images.example/a", FetchLimits(size=2**20)) == (
        "image_too_large",
        "It leads to more than 1 MB. Send less.",
    )


@pytest.mark.promise("media.fetch.bounds")
async def test_a_host_that_keeps_silent_is_left_at_the_time_limit(site: Site) -> None:
    site.answers["/a"] = silence
    assert await site.refusal("https://images.example/a", FetchLimits(seconds=0.2)) == (
        "invalid_image_url",
        "Its host is too slow. The limit is 0.2 seconds: send the content itself.",
    )


@pytest.mark.promise("media.fetch.bounds")
async def test_time_spent_on_an_endless_body_counts(site: Site) -> None:
    site.answers["/a"] = endless
    code, why = await site.refusal("https://images.example/a", FetchLimits(seconds=0.2, size=2**40))
    assert (code, why[:21]) == ("invalid_image_url", "Its host is too slow.")


async def test_a_name_server_that_keeps_silent_is_left_at_the_time_limit() -> None:
    async def resolver(_: str, __: int) -> Sequence[Endpoint]:
        await asyncio.Event().wait()
        return []

    loader = HttpMediaLoader(NO_HELPERS, GuardedFetcher(resolver=resolver, limits=FetchLimits(seconds=0.05)))
    assert (await refusal(loader, "https://images.example/a"))[1].startswith("Its host is too slow.")


@pytest.mark.parametrize("body", [b"", b"<svg/>", b"BM bitmap", b"RIFF\x00\x00\x00\x00WAVE", b"%PDF-1.7", PNG[:4]])
async def test_what_is_no_supported_image_is_refused_whatever_it_calls_itself(site: Site, body: bytes) -> None:
    site.answers["/a"] = reply(body, "content-type: image/png")
    assert await site.refusal("https://images.example/a") == (
        "invalid_image_format",
        "The image URL does not lead to an image that the model can read. Use PNG, JPEG, GIF or WebP.",
    )


@pytest.mark.parametrize("status", ["204 No Content", "206 Partial Content", "304 Not Modified", "404 Not Found"])
async def test_any_status_but_200_is_told(site: Site, status: str) -> None:
    site.answers["/a"] = reply(b"", status=status)
    assert await site.refusal("https://images.example/a") == (
        "invalid_image_url",
        f"Its host answered with status {status[:3]}. Check the URL.",
    )


async def test_a_compressed_answer_is_told(site: Site) -> None:
    site.answers["/a"] = reply(PNG, "content-encoding: gzip")
    assert await site.refusal("https://images.example/a") == (
        "invalid_image_url",
        "Its host insists on compressing the answer. Send the content itself.",
    )


@pytest.mark.parametrize("raw", [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"])
async def test_a_broken_answer_is_told(site: Site, raw: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    site.answers["/a"] = answer
    assert await site.refusal("https://images.example/a") == (
        "invalid_image_url",
        "The connection failed. Try again, or send the content itself.",
    )


@pytest.mark.parametrize("host", ["wrong.example", "127.0.0.1"])
async def test_the_certificate_of_another_host_is_refused(site: Site, host: str) -> None:
    assert await site.refusal(f"https://{host}/a") == (
        "invalid_image_url",
        "The certificate of its host is not valid. Use another host.",
    )
    assert site.heads == []


async def test_a_certificate_of_an_unknown_authority_is_refused(site: Site) -> None:
    loader = HttpMediaLoader(NO_HELPERS, GuardedFetcher(resolver=site.resolve, allowed=loopback_or_public))
    assert await refusal(loader, "https://images.example/a") == (
        "invalid_image_url",
        "The certificate of its host is not valid. Use another host.",
    )


async def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site.answers["/a"] = reply(PNG)
    await site.loader().image("https://images.example/a", param="p")
    assert site.connections == 1


async def test_images_are_fetched_side_by_side(site: Site) -> None:
    together = asyncio.Barrier(20)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await together.wait()
        await reply(PNG)(reader, writer)

    site.answers["/a"] = answer
    loader = site.loader()
    await asyncio.gather(*(loader.image("https://images.example/a", param="p") for _ in range(20)))
    assert site.connections == 20


@pytest.mark.promise("media.file.url")
@pytest.mark.parametrize(("filename", "named"), [(None, "File: my notes.txt\n\n"), ("todo.md", "File: todo.md\n\n")])
async def test_a_file_is_fetched_and_named(site: Site, filename: str | None, named: str) -> None:
    site.answers["/dir/my%20notes.txt?x=y"] = reply(b"buy milk")
    part = FilePart(filename=filename, mime_type=None, url="https://images.example/dir/my%20notes.txt?x=y", param="p")
    assert await site.loader().file_text(part) == named + "buy milk"


async def test_the_content_type_of_a_fetched_file_counts(site: Site) -> None:
    site.answers["/"] = reply("größer".encode("latin-1"), "content-type: text/plain; charset=iso-8859-1")
    part = FilePart(filename=None, mime_type=None, url="https://images.example/", param="p")
    assert await site.loader().file_text(part) == "größer"


@pytest.mark.promise("media.file.url")
@pytest.mark.parametrize(
    ("url", "limit", "code"),
    [
        ("https://images.example/a", 3, "file_too_large"),
        ("http://images.example/a", 9, "invalid_file_url"),
        ("https://internal.example/a", 9, "invalid_file_url"),
    ],
)
async def test_the_guard_also_holds_for_files(site: Site, url: str, limit: int, code: str) -> None:
    site.answers["/a"] = reply(b"text")
    site.names["internal.example"] = [[Endpoint(PRIVATE, 443)]]
    part = FilePart(filename=None, mime_type=None, url=url, param="input[2]")
    with pytest.raises(InvalidRequest) as caught:
        await site.loader(FetchLimits(size=limit)).file_text(part)
    assert (caught.value.error_code, caught.value.param) == (code, "input[2]")


async def _closed_endpoint() -> Endpoint:
    server = await asyncio.start_server(lambda _, __: None, str(LOOPBACK), 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return Endpoint(LOOPBACK, port)
