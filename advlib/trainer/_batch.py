"""Token sequences as the training step wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array

from advlib.trainer._options import count
from advlib.trainer._prompts import Prompts, pad_prompts
from advlib.trainer._sampler import Samples

__all__ = ["Batch", "rollout_batch", "text_batch"]

Values = Array | np.ndarray


class Batch(NamedTuple):
    """Sequences of prompt and response; every field speaks of the token in its own column.

    Attributes:
        tokens: (B, L) int32.
        mask: (B, L) booleans, False for padding.
        actions: (B, L) booleans, True for tokens that are trained; never in column 0.
        log_probs: (B, L) float32, as the tokens were sampled; read where ``actions`` is True.
        advantages: (B, L) float32; read where ``actions`` is True.
        reference: (B, L) float32, log-probabilities of the tokens under a reference, see
            :func:`make_log_probs`; read where ``actions`` is True. None without one.
    """

    tokens: Values
    mask: Values
    actions: Values
    log_probs: Values
    advantages: Values
    reference: Values | None = None


def rollout_batch(
    prompts: Prompts, samples: Samples, advantages: Values, where: Values | None = None
) -> Batch:
    """Prompts, what was sampled after them, and one advantage a response.

    Args:
        prompts: B prompts of width P.
        samples: B responses of width N.
        advantages: (B,).
        where: (B,) booleans; a response that is False is not trained and counts in no denominator.
            Default: all.

    Returns:
        A :class:`Batch` of NumPy arrays, L = P + N; masks come from lengths, so a response may hold
        any token.

    Raises:
        ValueError: shapes differ; the advantage of a trained response is not finite.
    """
    tokens, responses = np.asarray(prompts.tokens), np.asarray(samples.tokens)
    rows, width = tokens.shape
    given = np.asarray(advantages)
    kept = np.ones(rows, bool) if where is None else np.asarray(where)
    for name, array in (("advantages", given), ("where", kept), ("samples", responses[:, 0])):
        if array.shape != (rows,):
            raise ValueError(f"{name} must have {rows} rows; got shape {array.shape}")
    bad = kept & ~np.isfinite(given)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"advantages must be finite; row {row}: {given[row]}")
    real = np.arange(width)[None] >= width - np.asarray(prompts.lengths)[:, None]
    sampled = np.arange(responses.shape[1])[None] < np.asarray(samples.lengths)[:, None]
    actions = np.concatenate([np.zeros_like(real), sampled & kept[:, None]], 1)
    old = np.concatenate([np.zeros(real.shape, np.float32), np.asarray(samples.log_probs)], 1)
    return Batch(
        np.concatenate([tokens, responses], 1).astype(np.int32),
        np.concatenate([real, sampled], 1),
        actions,
        old.astype(np.float32),
        np.where(actions, np.where(kept, given, 0)[:, None], 0).astype(np.float32),
    )


def text_batch(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    max_prompt: int,
    max_new: int,
    pad_token: int = 0,
) -> Batch:
    """Prompts and wanted responses, every response token of weight 1.

    For :func:`advlib.losses.cross_entropy`.

    Args:
        prompts: B lists of token ids.
        responses: B lists of token ids, the end token included.
        max_prompt: P.
        max_new: N.
        pad_token: what fills up shorter rows; no result depends on it.

    Returns:
        A :class:`Batch` of NumPy arrays, L = P + N; the log-probabilities are 0.

    Raises:
        ValueError: a list is empty or too long; the numbers of prompts and responses differ.
    """
    count("max_new", max_new, 1)
    if len(prompts) != len(responses):
        raise ValueError(f"got {len(prompts)} prompts and {len(responses)} responses")
    left = pad_prompts(prompts, max_prompt, pad_token=pad_token)
    right = np.full((len(responses), max_new), pad_token, np.int32)
    for row, response in enumerate(responses):
        if not 1 <= len(response) <= max_new:
            raise ValueError(
                f"responses must have 1 to {max_new} tokens; row {row} has {len(response)}"
            )
        right[row, : len(response)] = response
    lengths = np.array([len(response) for response in responses], np.int32)
    samples = Samples(right, np.zeros(right.shape, np.float32), lengths, np.zeros_like(lengths))  # type: ignore[arg-type]
    return rollout_batch(left, samples, np.ones(len(lengths), np.float32))
