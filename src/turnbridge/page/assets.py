"""The page's files, read once from the package, and the headers that bound what a browser does with them."""

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ASSETS = "/turnbridge/page"
INDEX = "index.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # Pictures that the user drops into the playground are shown from memory.
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    plain: bytes
    compressed: bytes
    media_type: str
    tag: str

    def answer(self, request: Request) -> Response:
        """Return the file, or that the browser has it already."""
        headers = {**SAFE_HEADERS, "etag": self.tag, "cache-control": "no-cache", "vary": "Accept, Accept-Encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        body = self.plain
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["content-encoding"] = self.compressed, "gzip"
        # Given so, since Starlette would add a second charset.
        return Response(body, headers={**headers, "content-type": self.media_type})


def load_assets() -> dict[str, Asset]:
    """Return the files by their paths."""
    return {
        f"{ASSETS}/{file.name}": _asset(file.name, file.read_bytes())
        for file in files("turnbridge.page").joinpath("static").iterdir()
        if PurePosixPath(file.name).suffix in TYPES
    }


def _asset(name: str, content: bytes) -> Asset:
    return Asset(
        plain=content,
        compressed=gzip.compress(content, mtime=0),
        media_type=TYPES[PurePosixPath(name).suffix],
        tag=f'W/"{hashlib.sha256(content).hexdigest()[:16]}"',
    )
