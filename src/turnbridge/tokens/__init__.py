"""The tokenizer of OpenAI's current models: tiktoken, with the vocabulary in this package, so nothing is downloaded."""

import asyncio
import functools
import hashlib
import lzma
import re
import threading
from binascii import a2b_base64
from collections.abc import Iterator
from importlib import resources

import tiktoken

ENCODING = "o200k_base"
VOCABULARY = f"{ENCODING}.tiktoken.xz"
# Of the file that OpenAI publishes, as in tiktoken.
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# How tiktoken splits text into words. The function of tiktoken that contains this pattern downloads the vocabulary.
WORDS = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

# The count of a longer text is estimated from samples of this total size, which take 4 to 25 ms.
EXACT_CHARACTERS = 65_536
# tiktoken gets this much at a time: it takes more than linear time for a long word, and panics at a million blanks.
CHUNK_CHARACTERS = 1_024
SAMPLES = EXACT_CHARACTERS // CHUNK_CHARACTERS

# Matches up to the last letter or digit before a character that always starts another word, which is no letter, digit,
# combining mark or apostrophe. Only common ones are listed.
_UP_TO_BOUNDARY = re.compile(r".*[^\W_](?=[\s!-&(-/:-@\[-`{-~\u3001\u3002\uff01\uff0c\uff1f])", re.DOTALL)

_loading = threading.Lock()


class OpenAITokenizer:
    """Counts and truncates text by tokens."""

    def __init__(self) -> None:
        self._loaded: asyncio.Future[tiktoken.Encoding] | None = None

    def prepare(self) -> None:
        """Start to load the vocabulary in a thread, once: it takes 0.3 s and 50 MB."""
        if self._loaded is None:
            self._loaded = asyncio.ensure_future(asyncio.to_thread(_encoding))

    async def ready(self) -> None:
        self.prepare()
        assert self._loaded is not None
        # Cancelling one turn must not cancel the load for others.
        await asyncio.shield(self._loaded)

    def count(self, text: str) -> int:
        """Return the number of tokens; an estimate beyond `EXACT_CHARACTERS`."""
        if len(text) <= EXACT_CHARACTERS:
            return sum(len(_tokens(chunk)) for chunk in _chunks(text))
        last = len(text) - CHUNK_CHARACTERS
        starts = (last * number // (SAMPLES - 1) for number in range(SAMPLES))
        sampled = sum(len(_tokens(text[start : start + CHUNK_CHARACTERS])) for start in starts)
        return round(sampled * len(text) / EXACT_CHARACTERS)

    def cut(self, text: str, limit: int) -> str:
        """Return the longest prefix of whole characters with at most `limit` tokens; beyond the bound, an estimate."""
        end = 0
        for chunk in _chunks(text[:EXACT_CHARACTERS]):
            tokens = _tokens(chunk)
            if len(tokens) > limit:
                kept = _encoding().decode_bytes(tokens[:limit])
                return text[: end + len(kept.decode(errors="ignore"))]
            limit -= len(tokens)
            end += len(chunk)
        rest = text[end:]
        tokens_of_rest = self.count(rest)
        return text if tokens_of_rest <= limit else text[: end + len(rest) * limit // tokens_of_rest]

    def settled(self, text: str) -> int:
        """Return the length of the prefix whose tokens do not depend on what follows.

        At most `CHUNK_CHARACTERS` remain: a longer word is split, and may then count one token more.
        """
        start = max(0, len(text) - CHUNK_CHARACTERS)
        return _boundary(text, start, len(text)) or (len(text) if start else 0)


def _chunks(text: str) -> Iterator[str]:
    """Yield `text` in parts of at most `CHUNK_CHARACTERS`, split between tokens where possible."""
    start = 0
    while (most := start + CHUNK_CHARACTERS) < len(text):
        end = _boundary(text, start, most + 1) or most
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """Return the last position between `start` and `end` that no token spans; 0 if there is none."""
    found = _UP_TO_BOUNDARY.match(text, start, end)
    return found.end() if found else 0


def _tokens(text: str) -> list[int]:
    return _encoding().encode_ordinary(text)


def _encoding() -> tiktoken.Encoding:
    # Two threads must not load it concurrently.
    with _loading:
        return _load()


@functools.cache
def _load() -> tiktoken.Encoding:
    compressed = resources.files(__name__).joinpath(VOCABULARY).read_bytes()
    vocabulary = lzma.decompress(compressed)
    if hashlib.sha256(vocabulary).hexdigest() != SHA256:
        raise RuntimeError(f"{VOCABULARY} is not the vocabulary that OpenAI publishes. Install Turnbridge again.")
    # Each line has a token in base64 and its rank, which is also the number of the line.
    ranks = {a2b_base64(line.partition(b" ")[0]): rank for rank, line in enumerate(vocabulary.splitlines())}
    encoding = tiktoken.Encoding(ENCODING, pat_str=WORDS, mergeable_ranks=ranks, special_tokens={})
    # The encoding has its own copy, and also refers to these 33 MB.
    ranks.clear()
    return encoding
