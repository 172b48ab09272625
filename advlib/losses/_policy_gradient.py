"""Losses whose gradient follows advantages, token by token."""

from __future__ import annotations

from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from advlib import _checks
from advlib._checks import Values
from advlib.losses._tokens import tokens

__all__ = ["Loss", "cross_entropy", "policy_gradient", "ppo_clip"]


class Loss(Protocol):
    """A loss as the training step calls it: three (B, T) arrays to one."""

    def __call__(self, log_probs: Array, sampled: Array, advantages: Array) -> Array:
        """Per-token losses from per-token log-probabilities.

        Args:
            log_probs: (B, T) log-probabilities under the parameters, differentiated.
            sampled: (B, T) log-probabilities when the tokens were sampled, constants.
            advantages: (B, T), constants.

        Returns:
            (B, T) losses. Tokens that are not trained are left out afterwards.
        """
        ...


def policy_gradient(
    log_probs: Values, sampled: Values, advantages: Values, *, mask: Values | None = None
) -> Array:
    """Importance-sampled policy gradient.

        ℓ_t = -exp(log π(y_t) - log π_old(y_t)) A_t

    Its gradient at π = π_old is that of -A log π.

    Args:
        log_probs: (B, T) in nats, differentiated.
        sampled: (B, T) in nats, as the tokens were sampled.
        advantages: (B, T), in the unit of the rewards.
        mask: (B, T) booleans, True for trained tokens. Default: all.

    Returns:
        (B, T) losses, 0 where the mask is False; what stands there changes nothing, in values and
        in gradients.

    Raises:
        TypeError, ValueError: an array is not of numbers, or the shapes differ.

    Source: the importance-sampling loss of tinker-cookbook.
    """
    now, then, given = tokens(mask, log_probs=log_probs, sampled=sampled, advantages=advantages)
    return -jnp.exp(now - then) * given


def ppo_clip(*, low: float = 0.2, high: float = 0.2) -> Loss:
    """Clipped policy gradient.

        ℓ_t = -min(ρ_t A_t, clip(ρ_t, 1 - low, 1 + high) A_t),    ρ_t = exp(log π - log π_old)

    Args:
        low: how far a ratio may fall before its gradient stops, in [0, 1].
        high: how far it may rise; above ``low`` it is the asymmetric clip of DAPO.

    Returns:
        The loss, a function of the arguments of :func:`policy_gradient`. Where it is clipped, loss
        and gradient are finite however large the ratio is.

    Raises:
        TypeError, ValueError: a bound is not a number, negative, or ``low`` above 1.

    Source: Schulman et al. 2017, arXiv:1707.06347, Eq. 7.
    """
    low = _checks.number("low", low, 0.0, 1.0)
    high = _checks.number("high", high, 0.0)
    with np.errstate(divide="ignore"):  # low = 1 never clips
        lowest, highest = float(np.log1p(-low)), float(np.log1p(high))

    def loss(
        log_probs: Values, sampled: Values, advantages: Values, *, mask: Values | None = None
    ) -> Array:
        now, then, given = tokens(mask, log_probs=log_probs, sampled=sampled, advantages=advantages)
        shift = now - then
        clipped = jnp.where(given > 0, shift > highest, shift < lowest) | (given == 0)
        bound = jnp.where(given > 0, 1 + high, 1 - low).astype(shift.dtype)
        # The ratio of a clipped token may be infinite: it is not computed, not even unused.
        return -jnp.where(clipped, bound, jnp.exp(jnp.where(clipped, 0, shift))) * given

    return loss


def cross_entropy(
    log_probs: Values, sampled: Values, advantages: Values, *, mask: Values | None = None
) -> Array:
    """Supervised loss, each token weighted by its advantage; 1 for all is maximum likelihood.

        ℓ_t = -A_t log π(y_t)

    Args:
        log_probs: (B, T) in nats, differentiated.
        sampled: (B, T), not used.
        advantages: (B, T) weights.
        mask: (B, T) booleans, True for trained tokens. Default: all.

    Returns:
        (B, T) losses, 0 where the mask is False.

    Raises:
        TypeError, ValueError: an array is not of numbers, or the shapes differ.
    """
    now, _, given = tokens(mask, log_probs=log_probs, sampled=sampled, advantages=advantages)
    return -given * now
