"""A parser that has been fed a whole text, in pieces of any size."""

from collections.abc import Iterable

from turnbridge.codex.legacy.calls import (
    Call,
    Piece,
    Text,
    ToolCallParser,
)

NAMES = ("f", "get_weather")


def read(chunks: Iterable[str], names: Iterable[str] = NAMES) -> list[Piece]:
    """Return the pieces of a text, with neighbouring texts joined."""
    parser = ToolCallParser(names)
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)] + parser.close()
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def written(pieces: Iterable[Piece]) -> str:
    """Return the text that pieces were read from."""
    return "".join(piece.text if isinstance(piece, Text) else piece.source for piece in pieces)


def calls(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """Return the names and arguments of the calls."""
    return [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, Call)]


def prose(pieces: Iterable[Piece]) -> str:
    """Return what stands outside of the calls."""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))
