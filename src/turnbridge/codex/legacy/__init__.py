"""Older versions of Codex: the v1 and early v2 dialects, and tools described in text.

Other packages use only what is imported here.
"""

from turnbridge.codex.legacy.flat_text import BUILT_IN, NO_WORKSPACE, flat_config
from turnbridge.codex.legacy.v1 import ListenerResult, NewConversationResult, open_v1
from turnbridge.codex.legacy.v2_early import open_v2_early

__all__ = [
    "BUILT_IN",
    "NO_WORKSPACE",
    "ListenerResult",
    "NewConversationResult",
    "flat_config",
    "open_v1",
    "open_v2_early",
]
