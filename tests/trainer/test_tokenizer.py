"""Bytes as tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advlib.trainer import ByteTokenizer


@given(st.text())
def test_a_text_comes_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert tokens[0] == tokenizer.begin_token
    assert tokenizer.decode(tokens) == text.encode("utf-8", "surrogatepass").decode()


@given(st.lists(st.integers(0, 258)))
def test_any_sample_is_some_text(tokens: list[int]) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokens) == tokenizer.decode([t for t in tokens if t < 256])


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert ByteTokenizer().decode([104, 255, 105]) == "h�i"


def test_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tokens must lie in \[0, 259\); got 259"):
        ByteTokenizer().decode([65, 259])


def test_no_special_token_can_be_sampled_but_the_end() -> None:
    tokenizer = ByteTokenizer()
    special = set(range(256, tokenizer.vocab_size))
    assert special - set(tokenizer.forbidden) == set(tokenizer.end_tokens)
