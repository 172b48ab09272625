"""Masked statistics over groups: the only place that reduces over rows.

Every reduction selects with ``where`` before it adds, so that whatever stands in a masked row never
meets arithmetic, and reduces over the named mesh axes, so that a group may span devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from advlib._mesh import Axes


def row_mask(mask: Array, values: Array) -> Array:
    """A (B,) mask shaped to select rows of (B, ...) values."""
    return mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))


class Segments(NamedTuple):
    """Which valid row belongs to which group.

    Attributes:
        ids: (B,) int32 in [0, num_groups); 0 where not valid.
        valid: (B,) bool.
        num_groups: number of groups, static.
        axes: mesh axes over which the rows are split, static.
    """

    ids: Array
    valid: Array
    num_groups: int
    axes: Axes

    def sum(self, values: Array) -> Array:
        """Per-group sums of (B, ...) values: (num_groups, ...)."""
        values = jnp.where(row_mask(self.valid, values), values, jnp.zeros_like(values))
        if self.num_groups == 1:  # a tree sum: faster than a scatter, and more accurate
            total = _reduced(jnp.sum, values)
        else:
            total = jax.ops.segment_sum(values, self.ids, num_segments=self.num_groups)
        return jax.lax.psum(total, self.axes) if self.axes else total

    def max(self, values: Array) -> Array:
        """Per-group maxima of (B, ...) values; the lowest value of the dtype for empty groups.

        Maxima decide, they carry no gradient.
        """
        values = jax.lax.stop_gradient(values)
        if jnp.issubdtype(values.dtype, jnp.floating):
            lowest = jnp.array(-jnp.inf, values.dtype)
        else:
            lowest = jnp.array(jnp.iinfo(values.dtype).min, values.dtype)
        values = jnp.where(row_mask(self.valid, values), values, lowest)
        if self.num_groups == 1:
            top = _reduced(partial(jnp.max, initial=lowest), values)
        else:
            top = jax.ops.segment_max(values, self.ids, num_segments=self.num_groups)
        return jax.lax.pmax(top, self.axes) if self.axes else top

    def rows(self, per_group: Array) -> Array:
        """Each row's group value: (num_groups, ...) to (B, ...)."""
        if self.num_groups == 1:
            return jnp.broadcast_to(per_group, self.ids.shape + per_group.shape[1:])
        return per_group[self.ids]

    def only(self, mask: Array) -> Segments:
        """The same groups, in which only rows with ``mask`` count."""
        return self._replace(valid=self.valid & mask)

    def whole_batch(self) -> Segments:
        """All valid rows as one group."""
        return self._replace(ids=jnp.zeros_like(self.ids), num_groups=1)


def segments(ids: Array, where: Array | None, num_groups: int, axes: Axes = ()) -> Segments:
    """Groups of a batch; an id outside [0, num_groups) makes its row invalid.

    Args:
        ids: (B,) integers.
        where: (B,) bool, or None for all rows.
        num_groups: number of groups.
        axes: mesh axes over which the batch is split.
    """
    valid = (ids >= 0) & (ids < num_groups)
    if where is not None:
        valid = valid & where
    return Segments(jnp.where(valid, ids, 0), valid, num_groups, axes)


def _reduced(reduction: Callable[..., Array], values: Array) -> Array:
    """(B,) or (B, K) to (1,) or (1, K), column by column: XLA is ten times faster at that."""
    if values.ndim == 1:
        return reduction(values)[None]
    return jnp.stack([reduction(values[:, k]) for k in range(values.shape[1])])[None]


class Spread(NamedTuple):
    """Where the valid rewards of each group lie.

    Attributes:
        lowest: (num_groups,) the minimum; 0 for an empty group.
        range: (num_groups,) maximum minus minimum; 0 for an empty group.
        constant: (num_groups,) bool, all valid rewards are equal up to 4 units in the last place
            (true for a group of one, and for an empty group).
    """

    lowest: Array
    range: Array
    constant: Array


def spread(groups: Segments, rewards: Array) -> Spread:
    """Minimum, range and the one definition of a constant group, by the inputs themselves.

    Deciding by computed deviations would not do: the float32 mean of equal rewards need not equal
    them, and a deviation of one rounding error divided by eps looks like a signal.
    """
    extremes = groups.max(jnp.stack([rewards, -rewards], axis=-1))
    highest, lowest = extremes[:, 0], -extremes[:, 1]
    empty = highest < lowest
    highest = jnp.where(empty, 0, highest)
    lowest = jnp.where(empty, 0, lowest)
    return Spread(lowest, highest - lowest, is_constant(lowest, highest))


def is_constant(lowest: Array, highest: Array) -> Array:
    """Whether values between these two are all equal, up to 4 units in the last place."""
    magnitude = jnp.maximum(jnp.abs(highest), jnp.abs(lowest))
    tolerance = 4 * jnp.finfo(lowest.dtype).eps
    # An infinite or NaN value that was not masked must stay visible: it is never "constant".
    return (highest - lowest <= tolerance * magnitude) & (magnitude < jnp.inf)


class Centred(NamedTuple):
    """Rewards about their group's mean, in units of the group's range.

    Unit range keeps squares of 1e-30 from vanishing and those of 1e30 from overflowing; measuring
    from the minimum keeps small differences of large rewards.

    Attributes:
        deviation: (B,) (r - mean) / range; exactly 0 in constant groups.
        scale: (num_groups,) the range, 1 for constant groups.
        mean: (num_groups,) the mean of the valid rewards, 0 for an empty group.
        num_valid: (num_groups,) how many are valid.
        square_sum: (num_groups,) the sum of squared deviations.
        constant: (num_groups,) bool.
    """

    deviation: Array
    scale: Array
    mean: Array
    num_valid: Array
    square_sum: Array
    constant: Array


def centred(groups: Segments, rewards: Array, rows: Array | None = None) -> Centred:
    """Centre rewards by group in two passes, masked rows left out.

    Args:
        groups: the groups; their valid rows make the statistics.
        rewards: (B,) floats, finite where valid.
        rows: (B,) bool, the rows that get a deviation, where more than those that count do.
    """
    rows = groups.valid if rows is None else rows
    lowest, reward_range, constant = spread(groups, rewards)
    scale = jnp.where(constant, 1, reward_range)
    per_row = groups.rows(jnp.stack([lowest, scale], axis=-1))
    unit = jnp.where(rows, rewards - per_row[:, 0], 0) / per_row[:, 1]
    # Zero in constant groups by value only: the gradient of r - mean is the same there too.
    unit = unit - jax.lax.stop_gradient(jnp.where(groups.rows(constant), unit, 0))
    sums = groups.sum(jnp.stack([jnp.ones_like(unit), unit], axis=-1))
    count = sums[:, 0]
    safe_count = jnp.maximum(count, 1)
    rough_mean = sums[:, 1] / safe_count
    rough = unit - groups.rows(rough_mean)
    # A second pass takes out the rounding of the first mean and corrects the squares for it.
    moments = groups.sum(jnp.stack([rough, rough * rough], axis=-1))
    left = moments[:, 0] / safe_count
    deviation = jnp.where(rows, rough - groups.rows(left), 0)
    mean = lowest + scale * (rough_mean + left)
    return Centred(deviation, scale, mean, count, moments[:, 1] - count * left * left, constant)
