"""Supervised imitation of a teacher: what a policy learns before it is reinforced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from advlib.losses import cross_entropy
from advlib.trainer._batch import text_batch
from advlib.trainer._options import count
from advlib.trainer._policy import Params, Policy
from advlib.trainer._step import init_state, make_train_step
from advlib.trainer._tokenizer import Tokenizer

__all__ = ["WarmStart", "warm_start"]


class WarmStart(NamedTuple):
    """A policy that imitates.

    Attributes:
        params: its parameters.
        losses: (steps,) mean negative log-likelihood of an answer token, in nats, before each
            update.
    """

    params: Params
    losses: np.ndarray


def warm_start(
    policy: Policy,
    params: Params,
    tokenizer: Tokenizer,
    lessons: Callable[[int], Sequence[tuple[str, str]]],
    *,
    max_prompt: int,
    max_new: int,
    steps: int = 400,
    learning_rate: float = 2e-3,
    told: Callable[[int, float], None] | None = None,
) -> WarmStart:
    """Train a policy to answer as a teacher does.

        loss = -(1/N) Σ_t log π(y_t | x, y_<t)   over the N answer tokens of the batch

    by Adam, whose rate rises over the first twentieth of the steps and falls to a tenth by a
    cosine; gradients are clipped at norm 1.

    Args:
        policy: which to train.
        params: where to begin, float32; they are not changed.
        tokenizer: of the policy. An answer is closed by its first end token.
        lessons: gives the (prompt, answer) pairs of a step, the same number at each.
        max_prompt: tokens of the longest prompt.
        max_new: tokens of the longest answer, its end token counted.
        steps: updates.
        learning_rate: the highest.
        told: called after each step with its number and loss.

    Returns:
        A :class:`WarmStart`.

    Raises:
        ValueError: an example is too long, or the loss is not finite.
    """
    count("steps", steps, 1)
    optimizer = _optimizer(steps, float(learning_rate))
    update = make_train_step(policy.apply, optimizer, cross_entropy, forbidden=tokenizer.forbidden)
    # A copy: an update takes the memory of the state that goes in.
    state = init_state(jax.tree.map(jnp.array, params), optimizer)
    opening, end = len(tokenizer.encode("")), tokenizer.end_tokens[0]
    losses = []
    for step in range(steps):
        pairs = lessons(step)
        batch = text_batch(
            [tokenizer.encode(prompt) for prompt, _ in pairs],
            [[*tokenizer.encode(answer)[opening:], end] for _, answer in pairs],
            max_prompt=max_prompt,
            max_new=max_new,
            pad_token=tokenizer.pad_token,
        )
        state, metrics = update(state, batch)
        losses.append(float(metrics.loss))
        if not metrics.applied:
            raise ValueError(f"warm start, step {step}: the loss is {losses[-1]}")
        if told is not None:
            told(step, losses[-1])
    return WarmStart(state.params, np.array(losses))


# One object a schedule, so that warm starts of one process share what is compiled.
@lru_cache(maxsize=8)
def _optimizer(steps: int, learning_rate: float) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, max(1, steps // 20), max(2, steps), 0.1 * learning_rate
    )
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
