"""Token masks, and statistics under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks, _mesh
from advlib._batch import core
from advlib._checks import Values
from advlib._segments import is_constant

__all__ = [
    "broadcast_to_tokens",
    "masked_mean",
    "masked_whiten",
    "response_mask",
    "rewards_to_tokens",
    "settle_rewards",
    "shift_to_targets",
]


def broadcast_to_tokens(advantages: Values, token_mask: Values) -> Array:
    """Give every trained token its response's advantage.

        A_it = m_it A_i

    Args:
        advantages: (B,) one advantage a response.
        token_mask: (B, T) booleans, True for tokens that the policy sampled and that are trained;
            numbers 0 and 1 are taken too. A boolean mask is by far the fastest.

    Returns:
        (B, T) advantages, exactly 0 where the mask is False.

    Raises:
        ValueError: the shapes are not (B,) and (B, T).
    """
    advantages = _checks.array("advantages", advantages, "float")
    mask = _checks.array("token_mask", token_mask, "bool")
    if advantages.ndim != 1 or mask.ndim != 2 or mask.shape[0] != advantages.shape[0]:
        raise ValueError(
            "advantages must be (B,) and token_mask (B, T); "
            f"got {tuple(advantages.shape)} and {tuple(mask.shape)}"
        )
    return _broadcast_to_tokens(advantages, mask)


@jax.jit
def _broadcast_to_tokens(advantages: Array, mask: Array) -> Array:
    # The compiler would else fold the whole estimator into the loop over tokens.
    advantages = jax.lax.optimization_barrier(advantages)
    return jnp.where(mask, advantages[:, None], 0)


def masked_mean(
    x: Values,
    mask: Values,
    axis: int | tuple[int, ...] | None = None,
    *,
    axis_name: _mesh.Axis = None,
) -> Array:
    """Mean of the values whose mask is True.

        Σ m x / Σ m,  and 0 where Σ m = 0

    Args:
        x: values of any shape.
        mask: booleans (or 0 and 1) of the same shape.
        axis: axes to reduce; None for all.
        axis_name: mesh axes over which x is split inside ``shard_map``. Default: all axes that the
            inputs vary over.

    Returns:
        The mean, reduced over ``axis``. No term is added to the count: one token of 2.0 gives 2.0.

    Raises:
        ValueError: the shapes differ.
    """
    values, kept = _pair("x", x, mask)
    axes = _mesh.split_axes((values, kept), axis_name)
    return _masked_mean(values, kept, axis=axis, axes=axes)


def masked_whiten(
    x: Values,
    mask: Values,
    *,
    ddof: int = 1,
    eps: float = 1e-8,
    axis_name: _mesh.Axis = None,
) -> Array:
    """Shift and scale to mean 0 and standard deviation 1 over the values whose mask is True.

        (x - mean) / √(var + eps),    var = Σ m (x - mean)² / (Σ m - ddof)

    Args:
        x: values of any shape.
        mask: booleans (or 0 and 1) of the same shape.
        ddof: 1 for the sample variance, 0 for the population's.
        eps: added to the variance, in the unit of x squared.
        axis_name: as in :func:`masked_mean`: all shards share one mean and one variance.

    Returns:
        Whitened values, exactly 0 where the mask is False. A single value, and values that are all
        equal, become 0: they hold no comparison.

    Raises:
        ValueError: the shapes differ, ``ddof`` is not 0 or 1, ``eps`` is negative.
    """
    _checks.one_of("ddof", ddof, (0, 1))
    eps = _checks.number("eps", eps, 0)
    values, kept = _pair("x", x, mask)
    axes = _mesh.split_axes((values, kept), axis_name)
    return _masked_whiten(values, kept, eps, ddof=ddof, axes=axes)


def response_mask(token_ids: Values, end_ids: int | Sequence[int]) -> Array:
    """Mask of a response's own tokens: up to and including the first end token.

        m_t = 1  iff  no token before t is an end token

    The first end token was sampled and is trained; what follows is padding, even where the padding
    has the same id. A response without an end token was cut: all of it counts.

    Args:
        token_ids: (T,) or (B, T) response tokens, right-padded.
        end_ids: the ids that end a response; samplers often know several.

    Returns:
        Booleans of the same shape.

    Raises:
        TypeError: the ids are not integers.
    """
    tokens = _checks.array("token_ids", token_ids, "int")
    ends = np.atleast_1d(np.asarray(end_ids))
    if ends.dtype.kind not in "iu" or ends.ndim != 1:
        raise TypeError(f"end_ids must be one integer or a list of them; got {end_ids!r}")
    is_end = jnp.isin(tokens, ends.astype(np.int32))
    count = is_end.astype(jnp.int32)
    return jnp.cumsum(count, axis=-1) == count  # no end token before this one


@core
def _masked_mean(x: Array, mask: Array, *, axis: Any, axes: _mesh.Axes) -> Array:
    total = jnp.sum(jnp.where(mask, x, 0), axis=axis)
    count = jnp.sum(mask.astype(x.dtype), axis=axis)
    if axes:
        total, count = jax.lax.psum((total, count), axes)
    return total / jnp.where(count > 0, count, 1)


@core
def _masked_whiten(x: Array, mask: Array, eps: ArrayLike, *, ddof: int, axes: _mesh.Axes) -> Array:
    lowest, highest = -jnp.inf, jnp.inf
    fixed = jax.lax.stop_gradient(x)
    top = jnp.max(jnp.where(mask, fixed, lowest), initial=lowest)
    bottom = jnp.min(jnp.where(mask, fixed, highest), initial=highest)
    if axes:
        top, bottom = jax.lax.pmax(top, axes), jax.lax.pmin(bottom, axes)
    # One value, or equal values, by the inputs: their computed variance need not be 0.
    varied = ~(is_constant(bottom, top) | (top < bottom))
    start = jnp.where(jnp.isfinite(bottom), bottom, 0)
    shifted = jnp.where(mask, x - start, 0)
    mean = _masked_mean(shifted, mask, axis=None, axes=axes)
    deviation = jnp.where(mask, shifted - mean, 0)
    squares, count = jnp.sum(deviation**2), jnp.sum(mask.astype(x.dtype))
    if axes:
        squares, count = jax.lax.psum((squares, count), axes)
    variance = jnp.where(varied, squares, 1) / jnp.maximum(count - ddof, 1)
    return jnp.where(mask & varied, deviation * jax.lax.rsqrt(variance + eps), 0)


def shift_to_targets(mask: Values) -> Array:
    """From a mask over tokens to a mask over next-token targets.

    Logits at position t predict token t + 1, so the mask loses its first entry, never its last.

    Args:
        mask: (..., T) booleans over tokens.

    Returns:
        (..., T - 1) booleans over targets.
    """
    return jnp.asarray(_checks.array("mask", mask, "bool"))[..., 1:]


def rewards_to_tokens(rewards: Values, mask: Values) -> Array:
    """Put each response's reward on its last trained token.

    Args:
        rewards: (B,) one reward a response.
        mask: (B, T) booleans, True for trained tokens.

    Returns:
        (B, T) rewards; a response without a trained token gets none.

    Raises:
        ValueError: the shapes are not (B,) and (B, T).
    """
    rewards = jnp.asarray(_checks.array("rewards", rewards, "float"))
    trained = jnp.asarray(_checks.array("mask", mask, "bool"))
    if rewards.ndim != 1 or trained.ndim != 2 or trained.shape[0] != rewards.shape[0]:
        raise ValueError(
            f"rewards must be (B,) and mask (B, T); got {rewards.shape} and {trained.shape}"
        )
    later = jnp.cumsum(trained[:, ::-1].astype(jnp.int32), axis=-1)[:, ::-1]
    return jnp.where(trained & (later == 1), rewards[:, None], jnp.zeros((), rewards.dtype))


def settle_rewards(token_rewards: Values, mask: Values) -> Array:
    """Move a reward that stands on an untrained token to the trained token before it.

    The reward of a tool call often arrives with the tool's output, which is not trained;
    :func:`advlib.gae` skips such tokens and would lose it.

    Args:
        token_rewards: (T,) or (B, T) rewards, finite on every token.
        mask: booleans of the same shape, True for trained tokens.

    Returns:
        Rewards of the same shape, 0 on untrained tokens. A reward before the first trained token
        moves forward to it; without any trained token it has no place and is dropped.

    Raises:
        ValueError: the shapes differ.
    """
    rewards, trained = map(jnp.asarray, _pair("token_rewards", token_rewards, mask))
    flat_rewards = rewards.reshape(-1, rewards.shape[-1])
    flat_trained = trained.reshape(flat_rewards.shape)

    def settle(row: Array, kept: Array) -> Array:
        owner = jnp.maximum(jnp.cumsum(kept.astype(jnp.int32)) - 1, 0)
        per_owner = jax.ops.segment_sum(row, owner, num_segments=row.shape[0])
        return jnp.where(kept, per_owner[owner], 0)

    return jax.vmap(settle)(flat_rewards, flat_trained).reshape(rewards.shape)


def _pair(name: str, x: Values, mask: Values) -> tuple[Any, Any]:
    values, kept = _checks.array(name, x, "float"), _checks.array("mask", mask, "bool")
    if values.shape != kept.shape:
        raise ValueError(
            f"{name} and mask must have one shape; "
            f"got {tuple(values.shape)} and {tuple(kept.shape)}"
        )
    return values, kept
