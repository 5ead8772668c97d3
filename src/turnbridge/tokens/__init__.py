"""The tokenizer of OpenAI's current models: tiktoken, with the vocabulary beside this module. Nothing is downloaded."""

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
# Of the file that OpenAI publishes; tiktoken knows the same.
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# How tiktoken splits text into words before it looks for tokens in each. tiktoken's own function that has this pattern
# downloads the vocabulary.
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

# What is longer is estimated from samples of this much: counting takes 4 ms for English, and up to 25 ms.
EXACT_CHARACTERS = 65_536
# What tiktoken is given at once: a long word takes more time than its parts, and a million blanks make it panic.
CHUNK_CHARACTERS = 1_024
SAMPLES = EXACT_CHARACTERS // CHUNK_CHARACTERS

# Up to the last letter or digit before a character that always begins another word: no letter, digit, combining mark or
# apostrophe. Only common ones are listed.
_UP_TO_BOUNDARY = re.compile(r".*[^\W_](?=[\s!-&(-/:-@\[-`{-~\u3001\u3002\uff01\uff0c\uff1f])", re.DOTALL)

_loading = threading.Lock()


class OpenAITokenizer:
    """Counts and cuts text as the model does."""

    def __init__(self) -> None:
        self._loaded: asyncio.Future[tiktoken.Encoding] | None = None

    def prepare(self) -> None:
        """Begin to load the vocabulary in a thread, unless that has begun: it takes 0.3 s and 50 MB, once."""
        if self._loaded is None:
            self._loaded = asyncio.ensure_future(asyncio.to_thread(_encoding))

    async def ready(self) -> None:
        """Return once the vocabulary is loaded."""
        self.prepare()
        assert self._loaded is not None
        # A turn that is cancelled must not cancel what others wait for.
        await asyncio.shield(self._loaded)

    def count(self, text: str) -> int:
        """Return how many tokens `text` has: an estimate if it is longer than `EXACT_CHARACTERS`."""
        if len(text) <= EXACT_CHARACTERS:
            return sum(len(_tokens(chunk)) for chunk in _chunks(text))
        last = len(text) - CHUNK_CHARACTERS
        starts = (last * number // (SAMPLES - 1) for number in range(SAMPLES))
        sampled = sum(len(_tokens(text[start : start + CHUNK_CHARACTERS])) for start in starts)
        return round(sampled * len(text) / EXACT_CHARACTERS)

    def cut(self, text: str, limit: int) -> str:
        """Return the longest prefix of `text` that is whole characters and has at most `limit` of its tokens.

        Beyond `EXACT_CHARACTERS` its end is estimated.
        """
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
        """Return how much of `text` has tokens that no longer change, whatever comes after it.

        At most `CHUNK_CHARACTERS` remain: a longer word is divided, and may then count one token more.
        """
        start = max(0, len(text) - CHUNK_CHARACTERS)
        return _boundary(text, start, len(text)) or (len(text) if start else 0)


def _chunks(text: str) -> Iterator[str]:
    """Yield `text` in parts of at most `CHUNK_CHARACTERS`, divided between two tokens wherever that is possible."""
    start = 0
    while (most := start + CHUNK_CHARACTERS) < len(text):
        end = _boundary(text, start, most + 1) or most
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """Return the last place between `start` and `end` that no token reaches across; 0 if there is none."""
    found = _UP_TO_BOUNDARY.match(text, start, end)
    return found.end() if found else 0


def _tokens(text: str) -> list[int]:
    return _encoding().encode_ordinary(text)


def _encoding() -> tiktoken.Encoding:
    # Two threads that are first at the same time must not load it twice.
    with _loading:
        return _load()


@functools.cache
def _load() -> tiktoken.Encoding:
    compressed = resources.files(__name__).joinpath(VOCABULARY).read_bytes()
    vocabulary = lzma.decompress(compressed)
    if hashlib.sha256(vocabulary).hexdigest() != SHA256:
        raise RuntimeError(f"{VOCABULARY} is not the vocabulary that OpenAI publishes. Install Turnbridge again.")
    # A token in base64 on each line, then its rank, which is also the number of the line.
    ranks = {a2b_base64(line.partition(b" ")[0]): rank for rank, line in enumerate(vocabulary.splitlines())}
    encoding = tiktoken.Encoding(ENCODING, pat_str=WORDS, mergeable_ranks=ranks, special_tokens={})
    # It has a copy of its own now, and would keep these 33 MB too.
    ranks.clear()
    return encoding
