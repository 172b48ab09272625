"""The distribution that is sampled and trained, said once for both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["log_distribution"]

# Far below any logit, and finite: p log p of a forbidden token is then exactly 0.
NEVER = -1e30


def log_distribution(
    logits: Array, *, temperature: float = 1.0, forbidden: tuple[int, ...] = ()
) -> Array:
    """Log-probabilities of every token.

        log softmax(logits / T),  forbidden tokens left out

    Args:
        logits: (..., V).
        temperature: T, static; 0 (greedy) is read as 1, the distribution the logits stand for.
        forbidden: ids that are never sampled, static.

    Returns:
        (..., V) log-probabilities; about -1e30 for forbidden tokens.
    """
    if temperature not in (0.0, 1.0):
        logits = logits / jnp.asarray(temperature, logits.dtype)
    if forbidden:
        barred = np.zeros(logits.shape[-1], bool)
        barred[list(forbidden)] = True
        barred = barred.reshape((1,) * (logits.ndim - 1) + (-1,))
        logits = jnp.where(barred, jnp.asarray(NEVER, logits.dtype), logits)
    return jax.nn.log_softmax(logits, axis=-1)
