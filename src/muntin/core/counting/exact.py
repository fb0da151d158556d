"""Exact token counts, offline: OpenAI's encodings and any Hugging Face `tokenizer.json`.

Owns the vocabularies in `vocab/` and the table from model names to encodings. Must not know
messages or budgets, and must never open a connection: tiktoken's own loader downloads, so it
is never called; tiktoken is handed the shipped vocabulary instead.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from muntin.core.checks import shown
from muntin.errors import InvalidInput, TokenizerError, needing

if TYPE_CHECKING:
    from tiktoken import Encoding

T = TypeVar("T")

# Three tokens frame a message and one names its role:
# https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken
_OPENAI_OVERHEAD = 4
# A name costs one token more, and three tokens begin the answer. ChatML and Llama 3 begin it with
# three and four.
_NAME_OVERHEAD = 1
_ANSWER_OVERHEAD = 3
_FUNCTION_OVERHEAD: Mapping[str, int] = {"o200k_base": 7, "cl100k_base": 10}
# ChatML (`<|im_start|>user\n` ... `<|im_end|>\n`) and Llama 3 (`<|start_header_id|>user
# <|end_header_id|>\n\n` ... `<|eot_id|>`) both frame a message with five tokens:
# https://huggingface.co/docs/transformers/chat_templating
# https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/
_HF_OVERHEAD = 5
_HF_ANSWER_OVERHEAD = 4

# How each encoding splits text before merging bytes:
# https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py
# The one change is `\s++$` in o200k_base, as cl100k_base has it: blanks up to the end of the
# text are one piece either way, but the atomic form needs no backtracking (see `_LONG_RUN`).
_PATTERNS: Mapping[str, str] = {
    "o200k_base": "|".join(
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s++$",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
    "cl100k_base": "|".join(
        (
            r"'(?i:[sdmt]|ll|ve|re)",
            r"[^\r\n\p{L}\p{N}]?+\p{L}++",
            r"\p{N}{1,3}+",
            r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
            r"\s++$",
            r"\s*[\r\n]",
            r"\s+(?!\S)",
            r"\s",
        )
    ),
}
_ALIASES: Mapping[str, str] = {"o200k": "o200k_base", "cl100k": "cl100k_base"}

# https://github.com/openai/tiktoken/blob/main/tiktoken/model.py; gpt-oss writes its special
# tokens differently (o200k_harmony) but ordinary text alike.
_MODELS: Mapping[str, str] = {
    "chatgpt-4o": "o200k_base",
    "gpt-3.5": "cl100k_base",
    "gpt-35": "cl100k_base",  # Azure's spelling
    "gpt-4": "cl100k_base",
    "gpt-4.1": "o200k_base",
    "gpt-4.5": "o200k_base",
    "gpt-4o": "o200k_base",
    "gpt-5": "o200k_base",
    "gpt-oss": "o200k_base",
    "o1": "o200k_base",
    "o3": "o200k_base",
    "o4": "o200k_base",
}

# The regex engine inside tiktoken keeps one entry per blank while it matches `\s+(?!\S)` and
# panics at a million. A shorter run is left to it; from this length on the text is cut first.
_LONG_RUN = 250_000
# Unicode White_Space without \r and \n; Python's own `\s` has \x1c-\x1f besides.
_BLANK = r"[\t\v\f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_LONG_BLANKS = re.compile(rf"(?<!{_BLANK}){_BLANK}{{{_LONG_RUN},}}+(?![\r\n])")

# The tokens of a text take many times its memory. So a longer text is counted in parts, cut at a
# blank between two letters: both patterns end a word there, and begin the next with the blank.
_PART = 1_000_000
_BETWEEN_WORDS = re.compile("(?<=[a-z]) (?=[a-z])")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ExactTokenizer:
    """A tokenizer that counts what the model itself would count."""

    name: str
    message_overhead: int
    _size: Callable[[str], int] = field(repr=False)
    name_overhead: int = field(default=_NAME_OVERHEAD, repr=False)
    answer_overhead: int = field(default=_ANSWER_OVERHEAD, repr=False)
    # The tokens of a function by OpenAI's formula for tools; None where it does not hold.
    function_overhead: int | None = field(default=None, repr=False)

    def count(self, text: str) -> int:
        """Return how many tokens `text` is, special-token spellings being ordinary text."""
        try:
            return self._size(text)
        except Exception as error:
            raise TokenizerError(f"tokenizer {self.name!r} cannot count: {error}") from error


def by_prefix(model: str, table: Mapping[str, T]) -> T | None:
    """Return the entry of the longest prefix of a model's name, ending where a word ends.

    Routes and fine-tunes are seen through: `openai/gpt-4o`, `ft:gpt-4o:acme`,
    `us.anthropic.claude-3-haiku`.
    """
    name = model.lower().rpartition("/")[2].removeprefix("ft:").rpartition("anthropic.")[2]
    fits = [p for p in table if name.startswith(p) and not name[len(p) : len(p) + 1].isalnum()]
    return table[max(fits, key=len)] if fits else None


def encoding_for_model(model: str) -> str | None:
    """Return the name of the encoding an OpenAI model uses, or None when it is not known."""
    return by_prefix(model, _MODELS)


def openai_tokenizer(encoding: str) -> ExactTokenizer:
    """Return the exact tokenizer for `o200k_base` or `cl100k_base`, loaded once per process."""
    name = _ALIASES.get(encoding, encoding)
    if name not in _PATTERNS:
        raise InvalidInput(f"unknown encoding {shown(encoding)}; known: {', '.join(_PATTERNS)}")
    return _load(name)


def hf_tokenizer(path: str | os.PathLike[str]) -> ExactTokenizer:
    """Return the tokenizer in a local Hugging Face `tokenizer.json`; nothing is downloaded."""
    with needing("reading a tokenizer.json needs: pip install 'muntin[hf]'"):
        from tokenizers import Tokenizer
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"no tokenizer file at {str(file)!r}")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise InvalidInput(f"not a tokenizer.json: {str(file)!r} ({error})") from error
    # A file may carry the limits of its training; they would cut or pad the text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return ExactTokenizer(
        file.resolve().parent.name if file.stem == "tokenizer" else file.stem,
        _HF_OVERHEAD,
        lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
        answer_overhead=_HF_ANSWER_OVERHEAD,
    )


@cache
def _load(name: str) -> ExactTokenizer:
    encode = openai_encoding(name).encode_ordinary
    return ExactTokenizer(
        name,
        _OPENAI_OVERHEAD,
        lambda text: sum(len(encode(part)) for piece in _pieces(text) for part in _parts(piece)),
        function_overhead=_FUNCTION_OVERHEAD[name],
    )


def openai_encoding(name: str) -> Encoding:
    """Return tiktoken's own encoder over the shipped vocabulary; special tokens are text."""
    with needing("exact OpenAI counts need: pip install 'muntin[tokens]'"):
        from tiktoken import Encoding
    return Encoding(
        name,
        pat_str=_PATTERNS[name],
        mergeable_ranks={token: rank for rank, token in enumerate(_vocabulary(name))},
        special_tokens={},
    )


def _vocabulary(name: str) -> Iterator[bytes]:
    """Yield an encoding's tokens by rank; the file is their number, lengths and bytes."""
    from importlib.resources import files  # slow to import, and needed only here

    data = zlib.decompress(
        files("muntin.core.counting").joinpath("vocab", f"{name}.bin").read_bytes()
    )
    body = 4 + int.from_bytes(data[:4], "big")
    for start, end in pairwise(accumulate(data[4:body], initial=body)):
        yield data[start:end]


def _pieces(text: str) -> Iterator[str]:
    """Cut `text` around very long runs of blanks, where both patterns cut it anyway.

    Before the run: no alternative goes on from a newline or a non-blank into a blank. In the
    run: `\\s+(?!\\S)` takes all blanks but the last, which may belong to the next word. A run
    followed by a newline is not cut, for `\\s*[\\r\\n]` takes it whole, and safely.
    """
    start = 0
    if len(text) >= _LONG_RUN:
        for run in _LONG_BLANKS.finditer(text):
            end = run.end() - (run.end() < len(text))
            yield text[start : run.start()]
            yield text[run.start() : end]
            start = end
    yield text[start:]


def _parts(text: str) -> Iterator[str]:
    """Cut a very long text between words, where both patterns cut it anyway."""
    start = 0
    while len(text) - start > _PART:
        boundary = _BETWEEN_WORDS.search(text, start + _PART)
        if boundary is None:
            break
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]
