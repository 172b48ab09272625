"""The kernel baseline over dense features, jitted: tiles of rows against tiles of columns.

A row keeps a running maximum, a running sum of weights and a running sum of weighted rewards, and
rescales them when a later tile raises the maximum. So no more than one tile of similarities exists
at a time, forward or backward, and the result does not depend on the tiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib._batch import core

TILE = 1024
LOWEST = -1e30  # finite: the difference of two of them is no NaN


def tile_size() -> int:
    """Rows and columns of a tile: an accelerator idles on what fills the cache of a processor."""
    return TILE if jax.default_backend() == "cpu" else 4 * TILE


class _Keys(NamedTuple):
    """What every row is compared with; the leading axes count tiles and rows of a tile."""

    features: Array
    rewards: Array
    log_weights: Array
    valid: Array
    position: Array


@core
def baseline(
    ids: Array,
    where: Array | None,
    rewards: Array,
    weights: Array | None,
    features: Array,
    temperature: ArrayLike,
    *,
    num_groups: int,
    axes: Any,
    fallback: str,
    advantages: bool,
    tile: int,
) -> Array:
    """Kernel baselines, or rewards minus kernel baselines."""
    valid = jnp.ones(ids.shape, bool) if where is None else where
    votes = valid
    log_weights = jnp.zeros_like(rewards)
    if weights is not None:
        votes = valid & (weights > 0)
        log_weights = jnp.log(jnp.where(votes, weights, 1))
    dtype = rewards.dtype
    unit = unit_rows(features.astype(dtype), valid)
    first_row = jnp.int32(0)
    keys = _Keys(
        unit, jnp.where(votes, rewards, 0), log_weights, votes, jnp.zeros(ids.shape, jnp.int32)
    )
    if axes:
        first_row = jax.lax.axis_index(axes).astype(jnp.int32) * jnp.int32(ids.shape[0])
        keys = jax.tree.map(lambda k: jax.lax.all_gather(k, axes, tiled=True), keys)
    index = jnp.arange(keys.valid.shape[0], dtype=jnp.int32)
    own_index = first_row + jnp.arange(ids.shape[0], dtype=jnp.int32)
    reference = _references(keys, index, own_index)
    beta = 1 / jnp.asarray(temperature, dtype)

    mean, alone = _weighted_means(
        unit, own_index, reference, keys._replace(position=index), beta, tile
    )
    if advantages:
        instead = rewards if fallback == "raw" else jnp.zeros_like(rewards)
        return jnp.where(valid, jnp.where(alone, instead, (rewards - reference) - mean), 0)
    own = jnp.where(valid, rewards, 0)
    instead = own if fallback == "zero" else jnp.zeros_like(rewards)
    return jnp.where(alone, instead, reference + mean)


def unit_rows(features: Array, valid: Array) -> Array:
    """Rows of unit length, or of zeros; so is a masked row that is not finite."""
    finite = jnp.all(jnp.isfinite(features), axis=1)
    features = jnp.where((valid | finite)[:, None], features, 0)
    # By the largest entry first: squares of 1e-30 vanish and those of 1e30 overflow.
    top = jax.lax.stop_gradient(jnp.max(jnp.abs(features), axis=1, initial=0.0))
    features = features / jnp.where(top == 0, 1, top)[:, None]
    square = jnp.sum(features * features, axis=1)
    norm = jnp.sqrt(jnp.where(square == 0, 1, square))
    return features / norm[:, None]


def _references(keys: _Keys, index: Array, own_index: Array) -> Array:
    """Per row the reward of another sample, that the rewards of all others are measured from.

    Constant rewards then differ from it by exact zeros, large ones by small numbers, and the row's
    own reward stays out of its baseline to the last bit.
    """
    first = jnp.argmax(keys.valid).astype(jnp.int32)
    second = jnp.argmax(keys.valid & (index != first))
    rewards = jax.lax.stop_gradient(keys.rewards)
    return jnp.where(own_index == first, rewards[second], rewards[first])


def _weighted_means(
    unit: Array, own_index: Array, reference: Array, keys: _Keys, beta: Array, tile: int
) -> tuple[Array, Array]:
    """Kernel means of r_j - reference_i over j ≠ i, and which rows have no such j."""
    size, columns = own_index.shape[0], keys.position.shape[0]
    tiled = jax.tree.map(lambda k: _split(k, min(tile, columns)), keys)

    @jax.checkpoint
    def of_rows(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x, own, origin = rows

        def add(carry: tuple[Array, Array, Array], k: _Keys) -> tuple[Any, None]:
            top, weight, value = carry
            product = jnp.matmul(x, k.features.T, precision=jax.lax.Precision.HIGHEST)
            logits = product * beta + k.log_weights[None, :]
            counts = k.valid[None, :] & (own[:, None] != k.position[None, :])
            logits = jnp.where(counts, logits, LOWEST)
            # The maximum cancels in the quotient: it needs no derivative.
            raised = jnp.maximum(top, jnp.max(jax.lax.stop_gradient(logits), axis=1))
            e = jnp.where(counts, jnp.exp(logits - raised[:, None]), 0)
            kept = jnp.exp(top - raised)
            distance = jnp.where(counts, k.rewards[None, :] - origin[:, None], 0)
            weight = weight * kept + jnp.sum(e, axis=1)
            value = value * kept + jnp.sum(e * distance, axis=1)
            return (raised, weight, value), None

        zero = jnp.zeros_like(origin) + 0 * jax.lax.stop_gradient(x[:, :1].sum(1))
        start = (zero + LOWEST, zero, zero)
        if tiled.position.shape[0] == 1:
            _, weight, value = add(start, jax.tree.map(lambda k: k[0], tiled))[0]
        else:
            _, weight, value = jax.lax.scan(jax.checkpoint(add), start, tiled)[0]
        alone = weight == 0
        return value / jnp.where(alone, 1, weight), alone

    rows = (unit, own_index, reference)
    if size <= tile:
        return of_rows(rows)
    split = tuple(_split(r, tile) for r in rows)
    means, alone = jax.lax.map(of_rows, split)
    return means.reshape(-1)[:size], alone.reshape(-1)[:size]


def _split(array: Array, tile: int) -> Array:
    """(n, ...) to (tiles, tile, ...), filled up with zeros: rows that are not valid."""
    tiles = -(-array.shape[0] // tile) if tile else 1
    extra = tiles * tile - array.shape[0]
    padded = jnp.pad(array, ((0, extra),) + ((0, 0),) * (array.ndim - 1)) if extra else array
    return padded.reshape(tiles, tile, *array.shape[1:])
