"""What conversations are compared by while their threads are kept: a few bytes in place of megabytes of text."""

from collections.abc import Iterable
from hashlib import blake2b

from turnbridge.turn.values import seen

# So many that values which differ never share a digest, by chance or by somebody's design.
DIGEST_BYTES = 32


def digest(values: Iterable[object]) -> bytes:
    """Return what the same values have in common, in the eyes of the model, and share with no others."""
    hashed = blake2b(digest_size=DIGEST_BYTES)
    for value in values:
        hashed.update(seen(value))
        hashed.update(b"\n")
    return hashed.digest()
