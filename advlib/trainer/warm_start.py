"""Supervised imitation of a teacher: what a policy learns before it is reinforced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from advlib.trainer._options import count
from advlib.trainer._policy import Params, Policy
from advlib.trainer._tokenizer import Tokenizer


class WarmStart(NamedTuple):
    """A policy that imitates.

    Attributes:
        params: its parameters.
        losses: (steps,) mean negative log-likelihood of an answer token, in nats, before each
            step's update.
    """

    params: Params
    losses: np.ndarray


class Examples(NamedTuple):
    """Prompts with their answers, one shape for all batches.

    Attributes:
        tokens: (B, T) prompt, answer, end of text; padding on the right.
        mask: (B, T) booleans, False for padding.
        answers: (B, T) booleans, True for the tokens of the answer and for the end of text.
    """

    tokens: np.ndarray
    mask: np.ndarray
    answers: np.ndarray


def warm_start(
    policy: Policy,
    params: Params,
    tokenizer: Tokenizer,
    lessons: Callable[[int], Sequence[tuple[str, str]]],
    *,
    steps: int = 400,
    learning_rate: float = 2e-3,
    length: int = 48,
    told: Callable[[int, float], None] | None = None,
) -> WarmStart:
    """Train a policy to answer as a teacher does.

        loss = -(1/N) Σ_t log π(y_t | x, y_<t)   over the N answer tokens of the batch

    by Adam, whose rate rises over the first twentieth of the steps and falls to a tenth by a
    cosine.

    Args:
        policy: which to train.
        params: where to begin; float32. They are not changed.
        tokenizer: of the policy.
        lessons: gives the (prompt, answer) pairs of a step, the same number at each.
        steps: updates.
        learning_rate: the highest.
        length: T, tokens of the longest example; all batches are of this shape.
        told: called after each step with its number and loss.

    Returns:
        A :class:`WarmStart`.

    Raises:
        ValueError: an example is longer than ``length``, or the loss is not finite.
    """
    import optax

    count("steps", steps, 1)
    rate = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, max(1, steps // 20), max(2, steps), 0.1 * learning_rate
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

    @jax.jit
    def update(params: Params, state: Any, batch: Examples) -> tuple[Params, Any, Array]:
        loss, gradient = jax.value_and_grad(imitation_loss, argnums=1)(policy, params, batch)
        changes, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, changes), state, loss

    state = optimizer.init(params)
    losses = []
    for step in range(steps):
        batch = examples(tokenizer, lessons(step), length)
        params, state, loss = update(params, state, batch)
        losses.append(float(loss))
        if not np.isfinite(losses[-1]):
            raise ValueError(f"the loss of warm-start step {step} is {losses[-1]}")
        if told is not None:
            told(step, losses[-1])
    return WarmStart(params, np.array(losses))


def imitation_loss(policy: Policy, params: Params, batch: Examples) -> Array:
    """Mean negative log-likelihood of the answer tokens of a batch, in nats a token."""
    tokens, mask, answers = (jnp.asarray(column) for column in batch)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    logits = policy.apply(params, tokens, positions, mask)[:, :-1]
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1)[..., 0]
    counted = answers[:, 1:]
    return -jnp.where(counted, chosen, 0.0).sum() / jnp.maximum(counted.sum(), 1)


def examples(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], length: int) -> Examples:
    """Prompts and answers as tokens, each answer closed by the first of the end tokens.

    Args:
        tokenizer: of the policy; encoding a prompt and an answer apart must give what encoding
            them together would, as it does for bytes.
        pairs: (prompt, answer) each.
        length: T.

    Returns:
        :class:`Examples` of shape (pairs, length).

    Raises:
        ValueError: a pair needs more than ``length`` tokens.
    """
    tokens = np.full((len(pairs), length), tokenizer.pad_token, np.int32)
    begin, end = np.zeros((2, len(pairs), 1), np.int32)
    opening = len(tokenizer.encode(""))
    for row, (prompt, answer) in enumerate(pairs):
        asked = tokenizer.encode(prompt)
        whole = [*asked, *tokenizer.encode(answer)[opening:], tokenizer.end_tokens[0]]
        if len(whole) > length:
            raise ValueError(
                f"length must be at least {len(whole)} for the prompt {prompt!r}; got {length}"
            )
        tokens[row, : len(whole)] = whole
        begin[row], end[row] = len(asked), len(whole)
    places = np.arange(length)
    # From lengths, not from the tokens: an end token may be the padding token.
    return Examples(tokens, places < end, (places >= begin) & (places < end))
