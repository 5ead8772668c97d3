"""The type and the size of an image, read from its first bytes."""

IMAGE_SIZE_LIMIT = 20 * 1024 * 1024
"""Bytes of one image. Larger ones gain nothing, since the provider scales them down, and take memory here."""

MAX_PIXELS = 50_000_000
"""Pixels of one image: as many as most phone cameras have. The provider scales it down to 2048 by 2048 at most.

Codex decodes images: a PNG of 5 MB with 400 million pixels took 1.9 GB and 6 seconds of the process that serves all.
"""

MAX_TOTAL_PIXELS = 1_000_000_000
"""Pixels of all inline images of a request: a hundred 4K screenshots. Codex takes 10 seconds for them."""

UNKNOWN_PIXELS = float("inf")

SUPPORTED_IMAGES = "PNG, JPEG, GIF or WebP"

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}

# Before the size of a JPEG come a few segments, with Exif data some dozens.
_MOST_SEGMENTS = 1000
# The segments of a JPEG that hold its size.
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_FRAME_BYTES = 9


def image_type(data: bytes) -> str | None:
    """Return the MIME type of a supported image, or None when the bytes are something else."""
    for signature, mime_type in _SIGNATURES.items():
        if data.startswith(signature):
            return mime_type
    # The file's length is between the two signatures of WebP.
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_pixels(data: bytes) -> float:
    """Return the number of pixels by the header: 0 if it is truncated, `UNKNOWN_PIXELS` if it is not found."""
    size = image_size(data)
    return UNKNOWN_PIXELS if size is None else size[0] * size[1]


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height by the header: zeros if it is truncated, None if it is not found."""
    kind = image_type(data)
    if kind == "image/png":
        return _big(data[16:20]), _big(data[20:24])
    if kind == "image/gif":
        return _little(data[6:8]), _little(data[8:10])
    if kind == "image/webp":
        return _webp_size(data)
    return _jpeg_size(data)


def excess_of_pixels(pixels: float) -> str | None:
    """Return why an image has too many pixels, if so."""
    if pixels <= MAX_PIXELS:
        return None
    most = f"{MAX_PIXELS // 1_000_000} million pixels"
    found = "does not tell its size" if pixels == UNKNOWN_PIXELS else f"has {pixels / 1_000_000:.0f} million"
    return f"An image may have at most {most}; this one {found}. Send a smaller one."


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        return _little(data[24:27]) + 1, _little(data[27:30]) + 1
    if form == b"VP8L":
        sizes = _little(data[21:25])
        return (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1
    return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    place = 2
    for _ in range(_MOST_SEGMENTS):
        if len(data) < place + _JPEG_FRAME_BYTES:
            return 0, 0
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker in _FRAMES:
            return _big(data[place + 7 : place + 9]), _big(data[place + 5 : place + 7])
        if marker == 0xFF:
            place += 1  # Padding.
        else:
            place += 2 + _big(data[place + 2 : place + 4])
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
