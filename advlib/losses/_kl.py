"""How far a policy is from a reference, estimated from the tokens that it sampled.

All three estimate KL(π ‖ ref) = E_π[log π - log ref] from one token; they differ in variance, in
bias, and in what their gradients are the gradients of.
"""

from __future__ import annotations

from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from advlib._checks import Values
from advlib.losses._tokens import tokens

__all__ = ["Divergence", "kl_k1", "kl_k2", "kl_k3"]

# exp is followed up to here, then by its tangent: float32 ends at exp(88.7).
STEEPEST = 20.0


class Divergence(Protocol):
    """A divergence as the training step calls it: two (B, T) arrays to one."""

    def __call__(self, log_probs: Array, reference: Array) -> Array:
        """Per-token estimates, in nats.

        Args:
            log_probs: (B, T) log-probabilities under the parameters, differentiated.
            reference: (B, T) log-probabilities of the same tokens under the reference, constants.

        Returns:
            (B, T). Tokens that are not trained are left out afterwards.
        """
        ...


def kl_k1(log_probs: Values, reference: Values, *, mask: Values | None = None) -> Array:
    """The log-ratio: unbiased, of large variance, often negative.

        k1_t = δ_t,    δ_t = log π(y_t) - log ref(y_t)

    Over tokens of π its expected gradient is 0: subtract it from rewards, do not minimise it.

    Args:
        log_probs: (B, T) under the policy, in nats.
        reference: (B, T) of the same tokens under the reference, in nats.
        mask: (B, T) booleans, True for tokens that count. Default: all.

    Returns:
        (B, T) in nats, 0 where the mask is False; what stands there changes nothing, in values and
        in gradients.

    Raises:
        TypeError, ValueError: an array is not of numbers, or the shapes differ.

    Source: J. Schulman, Approximating KL Divergence, 2020, joschu.net/blog/kl-approx.html.
    """
    now, other = tokens(mask, log_probs=log_probs, reference=reference)
    return now - other


def kl_k2(log_probs: Values, reference: Values, *, mask: Values | None = None) -> Array:
    """Half the squared log-ratio: biased in value, never negative.

        k2_t = δ_t² / 2,    δ_t = log π(y_t) - log ref(y_t)

    Over tokens of π its expected gradient is that of KL(π ‖ ref).

    Args:
        log_probs: (B, T) under the policy, in nats.
        reference: (B, T) of the same tokens under the reference, in nats.
        mask: (B, T) booleans, True for tokens that count. Default: all.

    Returns:
        (B, T) in nats, 0 where the mask is False.

    Raises:
        TypeError, ValueError: an array is not of numbers, or the shapes differ.

    Source: as :func:`kl_k1`.
    """
    now, other = tokens(mask, log_probs=log_probs, reference=reference)
    return jnp.square(now - other) / 2


def kl_k3(log_probs: Values, reference: Values, *, mask: Values | None = None) -> Array:
    """The log-ratio with a control variate: unbiased, never negative.

        k3_t = exp(-δ_t) - 1 + δ_t,    δ_t = log π(y_t) - log ref(y_t)

    Over tokens of π its expected gradient is that of KL(ref ‖ π). Where -δ is above 20 the
    exponential is continued by its tangent, so that no finite log-probability overflows.

    Args:
        log_probs: (B, T) under the policy, in nats.
        reference: (B, T) of the same tokens under the reference, in nats.
        mask: (B, T) booleans, True for tokens that count. Default: all.

    Returns:
        (B, T) in nats, 0 where the mask is False.

    Raises:
        TypeError, ValueError: an array is not of numbers, or the shapes differ.

    Source: as :func:`kl_k1`.
    """
    now, other = tokens(mask, log_probs=log_probs, reference=reference)
    shift = other - now
    steep = shift > STEEPEST
    near = jnp.where(steep, STEEPEST, shift)
    # Selected, not subtracted from the shift: large gradients of opposite sign would cancel.
    beyond = jnp.where(steep, shift - STEEPEST, 0)
    return jnp.expm1(near) - near + float(np.expm1(STEEPEST)) * beyond
