"""How much a request's body may hold, whatever its size in bytes: work on it goes by its values, items and parts."""

from turnbridge.turn.errors import InvalidRequest

# OpenAI takes 2048 messages. A conversation that fills the largest context window with calls of a few words has some
# thousand items. This many take some ten milliseconds in each of the steps that look at all of them.
MAX_ITEMS = 10_000
# Of all messages and outputs together.
MAX_PARTS = 20_000

# JSON objects, arrays and scalars of a whole body. That many take 60 ms to read if each is an empty array, which is the
# worst of them; of a large body in ordinary use nearly all is inside of strings.
MAX_VALUES = 250_000
# Bytes of a body outside of strings and white space: numbers, names of constants, and what stands between them. To read
# a number takes time by the square of its digits, up to a few thousand.
MAX_STRUCTURE_BYTES = 2 * 2**20

# How much of a body is looked at in one go.
PIECE_BYTES = 2**20

_WHITE_SPACE = b" \t\r\n"
_BEFORE_VALUES = (b",", b"[", b"{")


def check_body(body: bytes) -> None:
    """Refuse a body with more JSON values than anybody sends, before any of them is made.

    It goes by pieces, none of which takes more than some milliseconds. What is no JSON may be counted wrongly, but only
    behind its first fault.
    """
    values = size = start = 0
    in_string = False
    while start < len(body):
        piece = body[start : start + PIECE_BYTES]
        # An escape is not torn apart: a quotation mark after an odd number of backslashes ends nothing.
        piece = piece[: len(piece) - _backslashes_at_the_end(piece) % 2] or piece
        start += len(piece)
        if b"\\" in piece:
            # In this order: a quotation mark after two backslashes ends its string.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        quoted = piece.split(b'"')
        structure = b"".join(quoted[in_string::2]).translate(None, _WHITE_SPACE)
        in_string ^= len(quoted) % 2 == 0
        values += max(len(quoted) // 2, sum(map(structure.count, _BEFORE_VALUES)))
        size += len(structure)
        if values > MAX_VALUES:
            raise InvalidRequest(
                f"The JSON body of your request has more than {MAX_VALUES} values. Send fewer.", code="too_many_values"
            )
        if size > MAX_STRUCTURE_BYTES:
            raise InvalidRequest(
                f"The JSON body of your request has more than {MAX_STRUCTURE_BYTES // 2**20} MB outside of strings. "
                "Send long data as text.",
                code="too_many_values",
            )


def is_within_budget(body: bytes) -> bool:
    """Tell whether `check_body` lets it pass."""
    try:
        check_body(body)
    except InvalidRequest:
        return False
    return True


def _backslashes_at_the_end(piece: bytes) -> int:
    return len(piece) - len(piece.rstrip(b"\\"))
