"""Text as tokens for a GPT: bytes, characters, or learnt pieces of words. Nothing is downloaded.

Pieces come from byte-pair encoding on bytes (Sennrich et al. 2016; Radford et al. 2019, section 2.2), which the package
``tokenizers`` learns from the text. Every text is a sequence of pieces.

Shapes: T tokens, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syno_lab.errors import DataError, SpecError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenKind = Literal["bytes", "characters", "bpe"]

BYTES = 256
VOCABULARY = 1024
"""The default number of tokens of byte-pair encoding, the bytes among them; GPT-2 has 50,257, for 40 GB of text."""
MOST_TOKENS = 1 << 17
_AT_ONCE = 1 << 20  # Characters per call; ``tokenizers`` needs some hundred bytes of memory for each token.


@dataclass(frozen=True)
class Tokens:
    """The encoding of a text as numbers: the 256 bytes of UTF-8, the characters of an ``alphabet`` in order, or the
    tokens of a tokenizer. ``learnt`` is the JSON of this tokenizer, from :func:`learn`.

    Raises SpecError for an alphabet that is empty or has a character twice, and for an alphabet with ``learnt``.
    """

    alphabet: str | None = None
    learnt: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.alphabet is not None and self.learnt is not None:
            raise SpecError("tokens: expected an alphabet or a learnt tokenizer, found both")
        if self.alphabet is not None and (not self.alphabet or len(set(self.alphabet)) != len(self.alphabet)):
            raise SpecError(f"an alphabet has each of its characters once, found {quoted(self.alphabet[:40])}")

    @property
    def size(self) -> int:
        """The number of tokens of the vocabulary."""
        if self.learnt is not None:
            return int(_tokenizer(self.learnt).get_vocab_size())
        return BYTES if self.alphabet is None else len(self.alphabet)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of bytes of each token in UTF-8 [V]."""
        if self.learnt is not None:
            # In a byte-level tokenizer each character of a piece's name is one byte.
            names = _tokenizer(self.learnt).get_vocab()
            return np.array([len(name) for name in sorted(names, key=lambda name: names[name])], np.int64)
        if self.alphabet is not None:
            return np.array([len(letter.encode("utf-8", "surrogatepass")) for letter in self.alphabet], np.int64)
        return np.ones(BYTES, np.int64)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Encode ``text`` as tokens [T]. Raises DataError with the index of a character that the alphabet lacks."""
        if self.learnt is not None:
            ids = [_tokenizer(self.learnt).encode(part).ids for part in _parts(text)]
            return np.concatenate([np.array(numbers, np.int64) for numbers in ids] or [np.empty(0, np.int64)])
        if self.alphabet is None:
            return np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        letters = np.frombuffer(self.alphabet.encode("utf-32-le", "surrogatepass"), np.uint32)
        order = np.argsort(letters)
        places = order[np.searchsorted(letters[order], points).clip(max=len(letters) - 1)]
        wrong = np.flatnonzero(letters[places] != points)
        if wrong.size:
            place = int(wrong[0])
            raise DataError(
                f"expected characters of an alphabet of {self.size}, found {quoted(text[place])} at {place}; "
                "take bytes, or an alphabet of this text too"
            )
        return places.astype(np.int64)

    def decode(self, tokens: NDArray[np.int64]) -> str:
        """Decode tokens [T] to text; bytes that are no UTF-8 become the replacement character.

        Raises DataError for a number that is no token.
        """
        numbers = np.asarray(tokens)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.size):
            raise DataError(f"expected tokens from 0 to {self.size - 1}, found {numbers.min()} to {numbers.max()}")
        if self.learnt is not None:
            return str(_tokenizer(self.learnt).decode(numbers.tolist()))
        if self.alphabet is None:
            return numbers.astype(np.uint8).tobytes().decode("utf-8", "replace")
        return "".join(self.alphabet[number] for number in numbers)


def tokens_for(text: str, kind: TokenKind = "bytes", size: int = VOCABULARY) -> Tokens:
    """Return the encoding for ``text``: bytes (for any text), the sorted characters of ``text``, or ``bpe``.

    ``size`` is the size of the vocabulary of ``bpe``, see :func:`learn`. Raises SpecError for an unknown kind or size,
    or for characters of an empty text; DataError for ``bpe`` of a text without words.
    """
    if kind == "bytes":
        return Tokens()
    if kind == "bpe":
        return learn(text, size)
    if kind != "characters":
        kinds = ", ".join(map(repr, get_args(TokenKind)))
        raise SpecError(f"tokens: expected one of {kinds}, found {quoted(kind)}")
    return Tokens("".join(sorted(set(text))))


def learn(text: str, size: int = VOCABULARY) -> Tokens:
    """Learn a byte-pair encoding from ``text``: the 256 bytes and the most frequent pairs, at most ``size`` tokens.

    A short text gives fewer tokens. Raises SpecError for a size that is no whole number from 257 to
    :data:`MOST_TOKENS`, and DataError for a text without words.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if isinstance(size, bool) or not isinstance(size, int) or not BYTES < size <= MOST_TOKENS:
        raise SpecError(f"vocabulary: expected a whole number from {BYTES + 1} to {MOST_TOKENS}, found {quoted(size)}")
    if not any(character.isalnum() for character in text):
        raise DataError("expected words to learn tokens from, found a text without letters and digits; take bytes")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(_parts(text), trainer)
    return Tokens(learnt=str(tokenizer.to_str()))


def _parts(text: str) -> Iterator[str]:
    """Yield the text in parts that end at the end of a line if possible."""
    first = 0
    while first < len(text):
        last = text.rfind("\n", first, first + _AT_ONCE) + 1 if first + _AT_ONCE < len(text) else len(text)
        last = last or first + _AT_ONCE
        yield text[first:last]
        first = last


@lru_cache(maxsize=2)
def _tokenizer(learnt: str) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(learnt)
