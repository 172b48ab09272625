"""Advantages per token: generalized advantage estimation as one decayed sum.

With δ_t = r_t + γ V_{t+1} - V_t, the advantage is A_t = Σ_{j ≥ t} (γλ)^{j-t} δ_j. The sum is taken
in blocks, as products with a small triangular matrix: a scan would wait for every token in turn.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks, _mesh
from advlib._batch import core
from advlib._checks import Values

_BLOCK = 16  # tokens; measured: smaller blocks wait for memory, larger ones multiply zeros
_LEAST_DECAY = 1 / 64  # below it, decay^-16 nears the end of float32


def gae(
    rewards: Values,
    values: Values,
    *,
    mask: Values | None = None,
    discount: float | Array = 1.0,
    lam: float | Array = 0.95,
    bootstrap: Values = 0.0,
) -> Array:
    """Generalized advantage estimation over the trained tokens of a response.

        δ_t = r_t + γ V_{next(t)} - V_t
        A_t = δ_t + γ λ A_{next(t)}

    next(t) is the next token whose mask is True; after the last one V is ``bootstrap`` and A is 0.
    Masked tokens (tool output, padding) are skipped: they take no discount, and nothing that stands
    in their reward or value slot is read. A reward that arrives on one must be moved first, by
    :func:`advlib.masking.settle_rewards`.

    Args:
        rewards: (T,) or (B, T) rewards.
        values: critic values of the same shape, in the unit of the rewards.
        mask: booleans (or 0 and 1) of the same shape, True for trained tokens; None for all.
        discount: γ in [0, 1].
        lam: λ in [0, 1].
        bootstrap: value after the last token: a number, or (B,) for responses that were cut.

    Returns:
        Advantages of the shape of ``rewards``, in their unit; exactly 0 on masked tokens. The
        critic's targets are ``advantages + values`` there.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: shapes differ; ``discount`` or ``lam`` is outside [0, 1]; in host arrays, a
            reward or value is not finite on a trained token.

    Source: Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage
    Estimation" (2016), Eq. 16.
    """
    discount = _checks.number("discount", discount, 0, 1)
    lam = _checks.number("lam", lam, 0, 1)
    r, v = _checks.array("rewards", rewards, "float"), _checks.array("values", values, "float")
    if r.ndim not in (1, 2) or r.shape != v.shape:
        raise ValueError(
            "rewards and values must be (T,) or (B, T), both the same; "
            f"got {tuple(r.shape)} and {tuple(v.shape)}"
        )
    m = None if mask is None else _checks.array("mask", mask, "bool")
    if m is not None and m.shape != r.shape:
        raise ValueError(
            f"mask must have the shape of rewards, {tuple(r.shape)}; got {tuple(m.shape)}"
        )
    end = _checks.array("bootstrap", bootstrap, "float")
    if end.shape not in ((), r.shape[:-1]):
        raise ValueError(
            f"bootstrap must be one number or {tuple(r.shape[:-1])}; got {tuple(end.shape)}"
        )
    for name, given in (("rewards", r), ("values", v)):
        _checks.finite_tokens(name, given, m)
    function = _gae if m is None else _gae_masked
    arguments = (r, v, discount, lam, end) if m is None else (r, v, discount, lam, end, m)
    sharding = _mesh.explicit_sharding((r, v, m))
    return _mesh.automatic(function, arguments, sharding, sharding and sharding.spec)


@core
def _gae(
    rewards: Array, values: Array, discount: ArrayLike, lam: ArrayLike, bootstrap: Array
) -> Array:
    if rewards.size == 0:
        return rewards
    last = jnp.broadcast_to(bootstrap, rewards.shape[:-1])[..., None]
    next_values = jnp.concatenate([values[..., 1:], last.astype(values.dtype)], axis=-1)
    deltas = rewards + discount * next_values - values
    return _decayed_sum(deltas, jnp.asarray(discount * lam, rewards.dtype))


def _decayed_sum(x: Array, decay: Array) -> Array:
    """Σ_{j ≥ t} decay^{j-t} x_j along the last axis: x @ W with W_{jt} = decay^{j-t}, by blocks."""
    steps, shape = x.shape[-1], x.shape[:-1]
    blocks = _blocks(x)
    powers = _powers(decay, _BLOCK)
    lag = jnp.arange(_BLOCK)[:, None] - jnp.arange(_BLOCK)[None, :]
    weights = jnp.where(lag >= 0, powers[jnp.abs(lag)], 0)
    inside = jnp.matmul(blocks, weights, precision=jax.lax.Precision.HIGHEST)
    whole = inside[..., 0]
    end = jnp.zeros(shape, x.dtype)
    incoming = _incoming(whole, jnp.broadcast_to(powers[_BLOCK], whole.shape), end)
    reach = jnp.broadcast_to(jnp.flip(powers[1:]), inside.shape)
    return (inside + incoming[..., None] * reach).reshape(*shape, -1)[..., :steps]


def _blocks(x: Array) -> Array:
    """(..., T) to (..., blocks, _BLOCK), filled up with zeros at the end, where nothing follows."""
    extra = -x.shape[-1] % _BLOCK
    if extra:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extra)])
    return x.reshape(*x.shape[:-1], -1, _BLOCK)


def _varying_like(end: Array, tokens: Array) -> Array:
    """Let a scan's start vary over the mesh axes that its tokens vary over, by naming one."""
    return jnp.where(jnp.zeros_like(end, dtype=bool), tokens[..., 0], end)


def _incoming(whole: Array, through: Array, end: Array) -> Array:
    """What each block gets from the one after it, which passes on whole + through · its own."""

    def step(later: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
        own, kept = block
        return own + kept * later, later

    by_block = (jnp.moveaxis(whole, -1, 0), jnp.moveaxis(through, -1, 0))
    end = _varying_like(end, whole)
    return jnp.moveaxis(jax.lax.scan(step, end, by_block, reverse=True)[1], 0, -1)


def _powers(base: Array, highest: int) -> Array:
    """base^0 .. base^highest by squaring: 0^0 is 1, and the gradient at 0 is right."""
    exponents = jnp.arange(highest + 1)
    powers = jnp.ones(highest + 1, base.dtype)
    for bit in range(highest.bit_length()):
        powers = powers * jnp.where((exponents >> bit) & 1 == 1, base, 1)
        base = base * base
    return jax.lax.optimization_barrier(powers)  # else recomputed for every token


@core
def _gae_masked(
    rewards: Array,
    values: Array,
    discount: ArrayLike,
    lam: ArrayLike,
    bootstrap: Array,
    mask: Array,
) -> Array:
    """The same sum over trained tokens, as a recursion on what a token passes to the one before it.

    U_t = γλ (r_t + U_{t+1}) + (γ - γλ) V_t  if trained, else U_{t+1};    A_t = r_t - V_t + U_{t+1}
    """
    if rewards.size == 0:
        return rewards
    # Selected before any arithmetic: a NaN in a masked slot must reach neither value nor gradient.
    rewards = jnp.where(mask, rewards, 0)
    values = jnp.where(mask, values, 0)
    decay = jnp.asarray(discount * lam, rewards.dtype)
    own = decay * rewards + (discount - decay) * values
    end = jnp.broadcast_to(discount * bootstrap.astype(own.dtype), own.shape[:-1])
    passed = jax.lax.cond(
        decay < _LEAST_DECAY, _passed_by_scan, _passed_by_blocks, own, mask, decay, end
    )
    return jnp.where(mask, rewards - values + passed, 0)


def _passed_by_scan(own: Array, mask: Array, decay: Array, end: Array) -> Array:
    """U_{t+1} for every t, token by token."""

    def step(later: Array, token: tuple[Array, Array]) -> tuple[Array, Array]:
        gain, kept = token
        return jnp.where(kept, gain + decay * later, later), later

    by_time = (jnp.moveaxis(own, -1, 0), jnp.moveaxis(mask, -1, 0))
    end = _varying_like(end, own)
    return jnp.moveaxis(jax.lax.scan(step, end, by_time, reverse=True)[1], 0, -1)


def _passed_by_blocks(own: Array, mask: Array, decay: Array, end: Array) -> Array:
    """U_{t+1} for every t, a block at a time.

    With n_t trained tokens from the block's start through t, a trained token j > t reaches t with
    weight decay^(n_j - 1 - n_t): a factor of j times one of t, so the block's sum is a product with
    a triangle of ones. The factors stay in range only for a decay that is not small.
    """
    steps, shape = own.shape[-1], own.shape[:-1]
    decay = jnp.maximum(decay, _LEAST_DECAY)  # the other branch's values must stay finite
    own, mask = _blocks(own), _blocks(mask)
    # One word holds a block's mask; counting its lowest bits counts trained tokens.
    place = jax.lax.broadcasted_iota(jnp.uint32, own.shape, own.ndim - 1)
    word = jnp.where(mask, jnp.uint32(1) << place, jnp.uint32(0))
    word = jnp.sum(word, axis=-1, keepdims=True, dtype=jnp.uint32)
    through = jnp.uint32(0xFFFFFFFF) >> (31 - place)
    count = jax.lax.population_count(word & through).astype(own.dtype)
    total = jax.lax.population_count(word[..., 0]).astype(own.dtype)
    log_decay = jnp.log2(decay)

    scaled = jnp.where(mask, own * jnp.exp2(log_decay * (count - 1)), 0)
    column = jnp.arange(_BLOCK)
    after = (column[:, None] > column[None, :]).astype(own.dtype)
    later = jnp.matmul(scaled, after, precision=jax.lax.Precision.HIGHEST)
    whole_block = scaled[..., 0] + later[..., 0]
    through_block = jnp.exp2(log_decay * total)

    incoming = _incoming(whole_block, through_block, end)
    passed = (later + (through_block * incoming)[..., None]) * jnp.exp2(-log_decay * count)
    return passed.reshape(*shape, -1)[..., :steps]
