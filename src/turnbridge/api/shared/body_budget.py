"""Limits on the JSON values, items and parts of a body: work depends on them, not on its size in bytes."""

from turnbridge.turn.errors import InvalidRequest

# OpenAI accepts 2048 messages. A conversation that fills the largest context window with short calls has some thousand
# items. This many take some ten milliseconds in each step that reads all of them.
MAX_ITEMS = 10_000
# Of all messages and outputs together.
MAX_PARTS = 20_000

# JSON objects, arrays and scalars of a whole body. Parsing this many takes 60 ms if each is an empty array, the worst
# case; ordinary large bodies consist almost only of strings.
MAX_VALUES = 250_000
# Bytes of a body outside of strings and white space: numbers, constants and punctuation. Parsing a number takes time by
# the square of its digits, up to a few thousand.
MAX_STRUCTURE_BYTES = 2 * 2**20

# A body is scanned in pieces of this size, each in a few milliseconds.
PIECE_BYTES = 2**20

_WHITE_SPACE = b" \t\r\n"
_BEFORE_VALUES = (b",", b"[", b"{")


def check_body(body: bytes) -> None:
    """Refuse a body with too many JSON values, before it is parsed; invalid JSON may be miscounted after its error."""
    values = size = start = 0
    in_string = False
    while start < len(body):
        piece = body[start : start + PIECE_BYTES]
        # Do not split an escape: a quotation mark after an odd number of backslashes does not end a string.
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
        excess = None
        if values > MAX_VALUES:
            excess = f"{MAX_VALUES} values. Send fewer."
        elif size > MAX_STRUCTURE_BYTES:
            excess = f"{MAX_STRUCTURE_BYTES // 2**20} MB outside of strings. Send long data as text."
        if excess is not None:
            raise InvalidRequest(f"The JSON body of your request has more than {excess}", code="too_many_values")


def is_within_budget(body: bytes) -> bool:
    """Tell whether `check_body` accepts a body."""
    try:
        check_body(body)
    except InvalidRequest:
        return False
    return True


def _backslashes_at_the_end(piece: bytes) -> int:
    return len(piece) - len(piece.rstrip(b"\\"))
