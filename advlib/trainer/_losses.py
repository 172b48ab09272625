"""Losses of single tokens; the step reduces them by a denominator that it names."""

from __future__ import annotations

from typing import Protocol

import jax.numpy as jnp
from jax import Array

from advlib import _checks

__all__ = ["Loss", "cross_entropy", "policy_gradient", "ppo_clip"]


class Loss(Protocol):
    """Per-token losses from per-token log-probabilities.

    Args:
        log_probs: (B, T) log-probabilities under the parameters, differentiated.
        sampled: (B, T) log-probabilities when the tokens were sampled, constants.
        advantages: (B, T), constants.

    Returns:
        (B, T) losses. Tokens that are not trained are left out afterwards.
    """

    def __call__(self, log_probs: Array, sampled: Array, advantages: Array) -> Array: ...


def policy_gradient(log_probs: Array, sampled: Array, advantages: Array) -> Array:
    """Importance-sampled policy gradient.

        ℓ_t = -exp(log π(y_t) - log π_old(y_t)) A_t

    Its gradient at π = π_old is that of -A log π.

    Args:
        log_probs: (B, T), differentiated.
        sampled: (B, T), as they were sampled.
        advantages: (B, T).

    Returns:
        (B, T) losses.

    Source: the importance-sampling loss of tinker-cookbook.
    """
    return -jnp.exp(log_probs - sampled) * advantages


def ppo_clip(*, low: float = 0.2, high: float = 0.2) -> Loss:
    """Clipped policy gradient.

        ℓ_t = -min(ρ_t A_t, clip(ρ_t, 1 - low, 1 + high) A_t),    ρ_t = exp(log π - log π_old)

    Args:
        low: how far a ratio may fall before its gradient stops, in [0, 1].
        high: how far it may rise; above ``low`` it is the asymmetric clip of DAPO.

    Returns:
        The loss function.

    Raises:
        TypeError, ValueError: a bound is not a number, negative, or ``low`` above 1.

    Source: Schulman et al. 2017, arXiv:1707.06347, Eq. 7.
    """
    low = _checks.number("low", low, 0.0, 1.0)
    high = _checks.number("high", high, 0.0)

    def loss(log_probs: Array, sampled: Array, advantages: Array) -> Array:
        ratio = jnp.exp(log_probs - sampled)
        clipped = jnp.clip(ratio, 1 - low, 1 + high)
        return -jnp.minimum(ratio * advantages, clipped * advantages)

    return loss


def cross_entropy(log_probs: Array, sampled: Array, advantages: Array) -> Array:
    """Supervised loss, each token weighted by its advantage; 1 for all is maximum likelihood.

        ℓ_t = -A_t log π(y_t)

    Args:
        log_probs: (B, T), differentiated.
        sampled: (B, T), not used.
        advantages: (B, T) weights.

    Returns:
        (B, T) losses.
    """
    return -advantages * log_probs
