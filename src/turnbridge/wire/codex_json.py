"""Which JSON of a client's Codex can read: a line with any other it passes over, or refuses without saying why."""

from turnbridge.turn.items import Json, layers

# Codex reads no JSON that is nested more than 128 levels deep, and the client's is not at the top of what it is sent.
MOST_LEVELS = 100
# Integers that Codex can read.
INTEGERS = range(-(2**63), 2**64)


def unreadable(value: Json) -> str | None:
    """Return why Codex cannot read a value, if so."""
    if levels(value) > MOST_LEVELS:
        return f"it is nested more than {MOST_LEVELS} levels deep, which Codex cannot read"
    if not has_readable_integers(value):
        return "it has an integer of more than 64 bits, which Codex cannot read"
    return None


def levels(value: Json) -> int:
    """Return how deep a value is nested; a value with nothing inside has one level."""
    return sum(1 for _ in layers(value))


def has_readable_integers(value: Json) -> bool:
    """Tell whether Codex can read every integer in a value."""
    return all(number in INTEGERS for layer in layers(value) for number in layer if isinstance(number, int))
