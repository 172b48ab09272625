"""Prompts as one array of fixed width, padded on the left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array

from advlib.trainer._options import count

__all__ = ["Prompts", "pad_prompts"]


class Prompts(NamedTuple):
    """A batch of prompts.

    Attributes:
        tokens: (B, P) int32, each prompt at the right end of its row.
        lengths: (B,) int32, at least 1.
        rows: (B,) int32, the number of the random stream that a row is sampled from.
    """

    tokens: Array | np.ndarray
    lengths: Array | np.ndarray
    rows: Array | np.ndarray


def pad_prompts(
    prompts: Sequence[Sequence[int]],
    width: int,
    *,
    pad_token: int = 0,
    rows: Sequence[int] | np.ndarray | None = None,
) -> Prompts:
    """Token lists as :class:`Prompts` of one width.

    Args:
        prompts: B lists of token ids.
        width: P, the same in every step: another width is another compilation.
        pad_token: what stands before a shorter prompt; no result depends on it.
        rows: (B,) numbers of the random streams, distinct. Default: 0 to B - 1.

    Returns:
        :class:`Prompts` of NumPy arrays.

    Raises:
        ValueError: a prompt is empty or longer than ``width``; nothing is cut.
    """
    count("width", width, 1)
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    for row, length in enumerate(lengths):
        if not 1 <= length <= width:
            raise ValueError(f"prompts must have 1 to {width} tokens; row {row} has {length}")
    tokens = np.full((len(prompts), width), pad_token, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
    streams = np.arange(len(prompts)) if rows is None else np.asarray(rows)
    if streams.shape != lengths.shape:
        raise ValueError(f"rows must be ({len(prompts)},); got shape {streams.shape}")
    return Prompts(tokens, lengths, streams.astype(np.int32))
