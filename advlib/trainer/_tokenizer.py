"""Text to token ids and back; the embedded tokenizer reads bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["ByteTokenizer", "Tokenizer", "check_vocabulary"]


class Tokenizer(Protocol):
    """What the loop needs of a tokenizer.

    Attributes:
        vocab_size: number of ids.
        pad_token: the id that fills up shorter rows.
        end_tokens: the ids that end a response; often several.
        forbidden: ids that the policy never samples, such as padding.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def pad_token(self) -> int: ...
    @property
    def end_tokens(self) -> tuple[int, ...]: ...
    @property
    def forbidden(self) -> tuple[int, ...]: ...

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with whatever opens a prompt."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a response, without the ids that are not text."""
        ...


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer that is not the policy's: an id that one of the two does not know."""
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} ids, more than the policy, {vocab_size}"
        )
    unknown = set(range(tokenizer.vocab_size, vocab_size)) - set(tokenizer.forbidden)
    if unknown:
        raise ValueError(
            f"the policy has {vocab_size} ids and the tokenizer {tokenizer.vocab_size}: those "
            f"above, such as {min(unknown)}, must be among its forbidden ids"
        )


class ByteTokenizer:
    """UTF-8 bytes as ids 0 to 255, and three ids more: padding, begin and end of text.

    Attributes:
        vocab_size: 259.
        pad_token: 256.
        begin_token: 257, put before every prompt.
        end_token: 258.
        end_tokens: the end of text alone.
        forbidden: padding and begin of text, which no response can hold.
    """

    vocab_size = 259
    pad_token = 256
    begin_token = 257
    end_token = 258
    end_tokens = (258,)
    forbidden = (256, 257)

    def encode(self, text: str) -> list[int]:
        """Begin of text, then the bytes.

        Raises:
            UnicodeEncodeError: the text holds half of a surrogate pair.
        """
        return [self.begin_token, *text.encode()]

    def decode(self, tokens: Sequence[int]) -> str:
        """The bytes as text, ``U+FFFD`` for those that are not UTF-8; ids above 255 are left out.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        outside = [token for token in tokens if not 0 <= token < self.vocab_size]
        if outside:
            raise ValueError(f"tokens must lie in [0, {self.vocab_size}); got {outside[0]}")
        return bytes(token for token in tokens if token < 256).decode(errors="replace")
