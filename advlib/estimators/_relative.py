"""What all estimators share that subtract a mean of other rewards: entry, deviations, way out."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks
from advlib._batch import FlatBatch, flat_batch, warn_if_alone
from advlib._checks import Values
from advlib._mesh import Axis
from advlib._segments import Centred, Segments, centred

Fallback = Literal["zero", "raw", "batch_mean", "batch_leave_one_out"]

_FALLBACKS = ("zero", "raw", "batch_mean", "batch_leave_one_out")


def grouped(
    rewards: Values,
    group_ids: Values,
    where: Values | None,
    num_groups: int | None,
    fallback: str,
    axis_name: Axis,
) -> FlatBatch:
    _checks.one_of("fallback", fallback, _FALLBACKS)
    batch = flat_batch([("rewards", rewards, "float")], group_ids, where, num_groups, axis_name)
    in_batch = fallback.startswith("batch")
    warn_if_alone(batch, whole_batch=in_batch, has_fallback=not in_batch)
    return batch


def ungrouped(rewards: Values, where: Values | None, fallback: str, axis_name: Axis) -> FlatBatch:
    _checks.one_of("fallback", fallback, _FALLBACKS[:2])
    batch = flat_batch([("rewards", rewards, "float")], None, where, None, axis_name)
    warn_if_alone(batch, whole_batch=True)
    return batch


def deviations(groups: Segments, stats: Centred) -> Array:
    """r_i - mean, in the unit of the rewards."""
    return stats.deviation * groups.rows(stats.scale)


def others(count: Array) -> Array:
    """n/(n - 1), and 1 where there are no others."""
    return count / jnp.where(count > 1, count - 1, 1)


def standard_deviation(stats: Centred, ddof: int) -> Array:
    """Per-group standard deviation, in the unit of the rewards; 1 where the group is constant."""
    variance = jnp.where(stats.constant, 1, stats.square_sum) / jnp.maximum(
        stats.num_valid - ddof, 1
    )
    return stats.scale * jnp.sqrt(jnp.where(stats.constant, 1, variance))


def over_mean(deviation: Array, mean: Array) -> Array:
    """Deviation divided by a positive mean, 0 where the mean is not positive."""
    positive = mean > 0
    return jnp.where(positive | jnp.isnan(mean), deviation / jnp.where(positive, mean, 1), 0)


def finish(
    groups: Segments,
    stats: Centred,
    advantages: Array,
    rewards: Array,
    fallback: str,
    *,
    in_std: tuple[ArrayLike, int] | None = None,
    in_mean: bool = False,
) -> Array:
    """Give samples with nothing to compare with their fallback, and masked samples 0."""
    instead = jnp.zeros_like(rewards)
    if fallback == "raw":
        instead = rewards
    elif fallback.startswith("batch") and groups.num_groups > 1:
        everyone = groups.whole_batch()
        batch = centred(everyone, rewards)
        instead = deviations(everyone, batch)
        baseline = rewards - instead
        if fallback == "batch_leave_one_out":
            instead = instead * others(batch.num_valid)
            baseline = rewards - instead
        if in_mean:
            instead = over_mean(instead, jnp.where(groups.valid, baseline, 1))
        if in_std is not None:
            eps, ddof = in_std
            instead = instead / jnp.where(batch.constant, 1, standard_deviation(batch, ddof) + eps)
            instead = jnp.where(batch.constant, 0, instead)
    alone = groups.rows(stats.num_valid) < 2
    return jnp.where(groups.valid, jnp.where(alone, instead, advantages), 0)
