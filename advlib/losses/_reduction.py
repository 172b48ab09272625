"""From losses of tokens to one number; each function is called by what it divides by.

They are different objectives: a mean over tokens weighs a response by its length, a mean per
response punishes long failures less, a constant does neither.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from advlib import _checks, _mesh
from advlib._checks import Values
from advlib.masking import masked_mean

__all__ = ["constant", "sequence_mean", "sequence_mean_token_mean", "token_mean"]


def token_mean(losses: Values, mask: Values, *, axis_name: _mesh.Axis = None) -> Array:
    """Mean over the trained tokens of the batch.

        Σ_it m_it ℓ_it / Σ_it m_it

    Args:
        losses: (B, T) losses of tokens.
        mask: (B, T) booleans, True for trained tokens.
        axis_name: mesh axes over which the rows are split inside ``shard_map``; all shards get the
            value of the whole batch. Default: all axes that the inputs vary over.

    Returns:
        () the mean; 0 without a trained token. What stands where the mask is False changes nothing,
        in value and in gradient.

    Raises:
        TypeError, ValueError: ``losses`` are not numbers, or the shapes are not one (B, T).
    """
    return masked_mean(*_tokens(losses, mask), axis_name=axis_name)


def sequence_mean(losses: Values, mask: Values, *, axis_name: _mesh.Axis = None) -> Array:
    """Mean over responses of the sum over their trained tokens.

        (1/n) Σ_i Σ_t m_it ℓ_it,    n: responses with a trained token

    With advantages of (B,) responses this is the policy gradient itself.

    Args:
        losses: (B, T) losses of tokens.
        mask: (B, T) booleans, True for trained tokens.
        axis_name: as in :func:`token_mean`.

    Returns:
        () the mean; 0 without a trained token.

    Raises:
        TypeError, ValueError: as :func:`token_mean`.
    """
    values, kept = _tokens(losses, mask)
    return masked_mean(
        jnp.sum(jnp.where(kept, values, 0), axis=1), jnp.any(kept, axis=1), axis_name=axis_name
    )


def sequence_mean_token_mean(
    losses: Values, mask: Values, *, axis_name: _mesh.Axis = None
) -> Array:
    """Mean over responses of the mean over their trained tokens.

        (1/n) Σ_i (Σ_t m_it ℓ_it / Σ_t m_it),    n: responses with a trained token

    Args:
        losses: (B, T) losses of tokens.
        mask: (B, T) booleans, True for trained tokens.
        axis_name: as in :func:`token_mean`.

    Returns:
        () the mean; 0 without a trained token.

    Raises:
        TypeError, ValueError: as :func:`token_mean`.
    """
    values, kept = _tokens(losses, mask)
    means = masked_mean(values, kept, axis=1, axis_name=())
    return masked_mean(means, jnp.any(kept, axis=1), axis_name=axis_name)


def constant(
    losses: Values, mask: Values, denominator: Any, *, axis_name: _mesh.Axis = None
) -> Array:
    """Sum over the trained tokens, divided by a number that the caller knows.

        Σ_it m_it ℓ_it / denominator

    The denominator of parts of a batch: given the count of the whole batch, the results of its
    micro-batches add up to the result of all, and so do their gradients.

    Args:
        losses: (B, T) losses of tokens.
        mask: (B, T) booleans, True for trained tokens.
        denominator: above 0: 1 for the sum, responses times the longest length, a global count.
        axis_name: as in :func:`token_mean`.

    Returns:
        () the sum over the denominator.

    Raises:
        TypeError, ValueError: as :func:`token_mean`; ``denominator`` is not above 0.
    """
    denominator = _checks.number("denominator", denominator, 0.0)
    if not isinstance(denominator, Array) and not denominator > 0:
        raise ValueError(f"denominator must be above 0; got {denominator!r}")
    values, kept = _tokens(losses, mask)
    total = jnp.sum(jnp.where(kept, values, 0))
    axes = _mesh.split_axes((values, kept), axis_name)
    if axes:
        total = jax.lax.psum(total, axes)
    return total / jnp.asarray(denominator, total.dtype)


def _tokens(losses: Values, mask: Values) -> tuple[Array, Array]:
    values, kept = _checks.array("losses", losses, "float"), _checks.array("mask", mask, "bool")
    if values.ndim != 2 or values.shape != kept.shape:
        raise ValueError(
            "losses and mask must be (B, T) of one shape; "
            f"got {tuple(values.shape)} and {tuple(kept.shape)}"
        )
    return jnp.asarray(values), jnp.asarray(kept)
