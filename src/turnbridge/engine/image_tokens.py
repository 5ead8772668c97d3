"""How many tokens an image takes, by the rules that OpenAI publishes for its models (guide "Images and vision")."""

import math
from collections.abc import Mapping
from typing import NamedTuple

PATCH_SIDE = 32

TILE_SIDE = 512
TILED_SIDE = 2048
TILED_SHORT_SIDE = 768


class Patches(NamedTuple):
    """The bounds of an image that is covered with patches: pixels of its longer side, and patches if they count."""

    side: int
    most: int | None = None


class PatchRules(NamedTuple):
    """How a model sizes an image, by its detail; another detail is that of `auto`."""

    sizes: Mapping[str, Patches]
    auto: Patches

    def tokens(self, width: int, height: int, detail: str | None) -> int:
        """Return the tokens of an image."""
        patches = _patches(*_sized(width, height, self.sizes.get(detail or "", self.auto)))
        # Times 1.2, in whole numbers: that is no binary fraction.
        return -(-patches * 12 // 10)


class TileRules(NamedTuple):
    """How an older model counts an image: a base, and so much for each tile."""

    base: int
    tile: int

    def tokens(self, width: int, height: int, detail: str | None) -> int:
        """Return the tokens of an image."""
        if detail == "low":
            return self.base
        width, height = _fitted(width, height, TILED_SIDE)
        scale = min(1.0, TILED_SHORT_SIDE / min(width, height))
        tiles = math.ceil(int(width * scale) / TILE_SIDE) * math.ceil(int(height * scale) / TILE_SIDE)
        return self.base + self.tile * tiles


_HIGH = Patches(2048, 2500)
_ORIGINAL = Patches(6000, 10_000)
_WHOLE = Patches(65_535)
_FIXED = Patches(2048, 6144)

CURRENT = PatchRules({"low": Patches(512), "high": _HIGH, "original": _WHOLE}, _WHOLE)
"""Of GPT-5.6; OpenAI publishes no other rules for what came after it."""

SENT = _HIGH
"""To this Codex scales images by itself, unless their detail is `original`."""

# By the beginning of a model's name; the first that fits.
OLDER: Mapping[str, PatchRules | TileRules] = {
    "gpt-5.5": PatchRules({"low": Patches(512), "high": _HIGH, "original": _ORIGINAL}, _ORIGINAL),
    "gpt-5.4": PatchRules({"low": _FIXED, "high": _HIGH, "original": _ORIGINAL}, _HIGH),
    "gpt-5.3": PatchRules({}, _FIXED),
    "gpt-5.2": PatchRules({}, _FIXED),
    "gpt-5.1": TileRules(70, 140),
    "gpt-5-": TileRules(70, 140),
}


def image_tokens(model: str, width: int, height: int, detail: str | None) -> int:
    """Return how many tokens a model counts for an image of this size, as Codex sends it."""
    if detail != "original":
        width, height = _sized(width, height, SENT)
    rules = next((rules for name, rules in OLDER.items() if f"{model}-".startswith(name)), CURRENT)
    return rules.tokens(width, height, detail)


def _fitted(width: int, height: int, side: int) -> tuple[int, int]:
    """Return the size of an image after it is scaled down so that no side is longer."""
    scale = min(1.0, side / max(width, height, 1))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _patches(width: int, height: int) -> int:
    return math.ceil(width / PATCH_SIDE) * math.ceil(height / PATCH_SIDE)


def _sized(width: int, height: int, size: Patches) -> tuple[int, int]:
    """Return the size of an image after it is scaled down to its bounds, by OpenAI's own formula."""
    width, height = _fitted(width, height, size.side)
    if size.most is None or _patches(width, height) <= size.most:
        return width, height
    scale = math.sqrt(PATCH_SIDE**2 * size.most / (width * height))
    sides = (width * scale / PATCH_SIDE, height * scale / PATCH_SIDE)
    # A very long image keeps one row of patches.
    scale *= min(math.floor(side) / side for side in sides if side >= 1)
    return max(1, int(width * scale)), max(1, int(height * scale))
