"""How much a request's body may hold, whatever its size in bytes: work on it goes by its values, items and parts."""

from turnbridge.turn.errors import InvalidRequest

# OpenAI takes 2048 messages. A conversation that fills the largest context window with calls of a few words has some
# thousand items. This many take some ten milliseconds in each of the steps that look at all of them.
MOST_ITEMS = 10_000
# Of all messages and outputs together.
MOST_PARTS = 20_000

# JSON objects, arrays and scalars of a whole body. That many take 60 ms to read if each is an empty array, which is the
# worst of them; of a large body in ordinary use nearly all is inside of strings.
MAX_VALUES = 250_000
# Bytes of a body outside of strings and white space: numbers, names of constants, and what stands between them. To read
# a number takes time by the square of its digits, up to a few thousand.
MAX_STRUCTURE_BYTES = 2 * 2**20

_WHITE_SPACE = b" \t\r\n"


def check_body(body: bytes) -> None:
    """Refuse a body with more JSON values than anybody sends, before any of them is made.

    Each step is one pass over the bytes. What is no JSON may be counted wrongly, but only behind its first fault.
    """
    if b"\\" in body:
        # In this order: a quotation mark after two backslashes ends its string.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = body.count(b'"') // 2
    if strings > MAX_VALUES:
        raise _too_many()
    structure = b"".join(body.split(b'"')[::2]).translate(None, _WHITE_SPACE)
    if structure.count(b",") + structure.count(b"[") + structure.count(b"{") > MAX_VALUES:
        raise _too_many()
    if len(structure) > MAX_STRUCTURE_BYTES:
        raise InvalidRequest(
            f"The JSON body of your request has more than {MAX_STRUCTURE_BYTES // 2**20} MB outside of strings. "
            "Send long data as text.",
            code="too_many_values",
        )


def _too_many() -> InvalidRequest:
    return InvalidRequest(
        f"The JSON body of your request has more than {MAX_VALUES} values. Send fewer.", code="too_many_values"
    )
