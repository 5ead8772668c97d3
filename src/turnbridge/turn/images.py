"""Which images the model takes, told by their first bytes; where the bytes come from is not known here."""

IMAGE_SIZE_LIMIT = 20 * 1024 * 1024
"""Bytes of one image. Larger ones gain nothing, since the provider scales them down, and cost memory here."""

SUPPORTED_IMAGES = "PNG, JPEG, GIF or WebP"

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(data: bytes) -> str | None:
    """Return the MIME type of a supported image, or None when the bytes are something else."""
    for signature, mime_type in _SIGNATURES.items():
        if data.startswith(signature):
            return mime_type
    # Between the two marks of WebP stands the length of the file.
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None
