"""What the values of this package are made of: immutable, compared by what is in them, and cheap to make.

A turn makes one for every delta. A frozen dataclass takes 0.4 µs to make and 5 to change, a `Struct` a fifth of that.
"""

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["AsSeen", "replace"]

# What the model does not see of an item: what it is called, and where in the request it stood.
UNSEEN = frozenset({"id", "param"})


class AsSeen(Struct, frozen=True, kw_only=True, eq=False):
    """A value that equals another if the model could not tell them apart."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsSeen) and type(self) is type(other) and self._seen() == other._seen()

    def __hash__(self) -> int:
        return hash(self._seen())

    def _seen(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__ if name not in UNSEEN])
