"""Who beats whom: candidates, their representatives, and win rates inside a group."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from advlib import _checks, _mesh
from advlib._batch import FlatBatch
from advlib._segments import Segments


class Candidates(NamedTuple):
    """Rows that belong together: the traces of one candidate.

    Attributes:
        ids: the candidate of each row, or None where each row is its own.
        first: (B,) bool, the first valid row of each candidate, which speaks for all.
    """

    ids: Segments | None
    first: Array

    def shared(self, values: Array) -> Array:
        """Each row's value, taken from its candidate's first row: (B,) integers or booleans."""
        if self.ids is None:
            return values
        numbers = values.astype(jnp.int32)
        return self.ids.rows(self.ids.only(self.first).max(numbers)).astype(values.dtype)

    def shared_float(self, values: Array) -> Array:
        """As :meth:`shared`, for floats."""
        if self.ids is None:
            return values
        return self.ids.rows(self.ids.only(self.first).sum(values))


def candidates(groups: Segments, candidate_ids: Array | None) -> tuple[Segments, Candidates]:
    """Find each candidate's first valid row; a row with an id out of range is left out.

    Args:
        groups: the groups.
        candidate_ids: (B,) integers in [0, B), or None.

    Returns:
        The groups, and the candidates.
    """
    if candidate_ids is None:
        return groups, Candidates(None, groups.valid)
    count = groups.ids.shape[0] * _mesh.across(groups.axes)
    inside = (candidate_ids >= 0) & (candidate_ids < count)
    groups = groups.only(inside)
    ids = Segments(jnp.where(groups.valid, candidate_ids, 0), groups.valid, count, groups.axes)
    row = jnp.arange(groups.ids.shape[0], dtype=jnp.int32)
    if groups.axes:
        row = row + jax.lax.axis_index(groups.axes) * groups.ids.shape[0]
    first = -ids.max(-row)
    return groups, Candidates(ids, groups.valid & (row == ids.rows(first)))


def win_rates(ranked: Segments, tiers: Array, dtype: Any = jnp.float32) -> Array:
    """Share of the other ranked rows of its group that each row beats, ties one half.

        w_i = (|worse| + (|same tier| - 1)/2) / (n - 1),  and 1 for a lone one

    Args:
        ranked: groups in which only ranked rows are valid.
        tiers: (B,) integers, 0 best.
        dtype: of the result.

    Returns:
        (B,) in [0, 1]; 0 where not ranked.
    """
    axes, size = ranked.axes, ranked.ids.shape[0]
    ids = jnp.where(ranked.valid, ranked.ids, ranked.num_groups)
    if axes:
        ids = jax.lax.all_gather(ids, axes, tiled=True)
        tiers = jax.lax.all_gather(tiers, axes, tiled=True)
    order = jnp.lexsort((tiers, ids))
    ids, tiers = ids[order], tiers[order]
    new_group = _differs(ids)
    group_start, group_end = _extent(new_group)
    tier_start, tier_end = _extent(new_group | _differs(tiers))
    total, same, worse = group_end - group_start, tier_end - tier_start, group_end - tier_end
    beaten = worse.astype(dtype) + 0.5 * (same - 1).astype(dtype)
    sorted_rates = jnp.where(total > 1, beaten / jnp.maximum(total - 1, 1).astype(dtype), 1)
    rates = jnp.zeros_like(sorted_rates).at[order].set(sorted_rates)
    if axes:
        rates = jax.lax.dynamic_slice_in_dim(rates, jax.lax.axis_index(axes) * size, size)
    return jnp.where(ranked.valid, rates, 0)


def _differs(values: Array) -> Array:
    """True at the first row and wherever a sorted row differs from the one before it."""
    first = jnp.ones_like(values[:1], dtype=bool)
    return jnp.concatenate([first, values[1:] != values[:-1]])


def _extent(starts: Array) -> tuple[Array, Array]:
    """Start (inclusive) and end (exclusive) of the run that each sorted row is in."""
    size = starts.shape[0]
    position = jnp.arange(size, dtype=jnp.int32)
    start = jax.lax.cummax(jnp.where(starts, position, 0))
    is_last = jnp.concatenate([starts[1:], jnp.ones_like(starts[:1])])
    end = jax.lax.cummin(jnp.where(is_last, position + 1, size), reverse=True)
    return start, end


def check_candidates(batch: FlatBatch) -> None:
    """Refuse a candidate whose traces disagree on what belongs to the candidate.

    Its first valid row speaks for it; the others say the same, or nothing (tier -1, no hack).

    Args:
        batch: host values; the last three columns are tiers, hacks and candidate ids.

    Raises:
        ValueError: an id is out of range, or two rows of a candidate differ.
    """
    if batch.columns[-1] is None or not batch.on_host:
        return
    valid = batch.valid
    rows = np.flatnonzero(valid)
    ids = np.asarray(batch.columns[-1])
    _checks.ids_in_range("candidate_ids", ids, valid, max(batch.size, 1))
    if not rows.size:
        return
    _, first, inverse = np.unique(ids[rows], return_index=True, return_inverse=True)
    tiers, hacks = batch.columns[-3:-1]
    for name, column, silent in (
        ("group_ids", batch.ids, None),
        ("tiers", tiers, -1),
        ("hacks", hacks, False),
    ):
        if column is None:
            continue
        values = np.asarray(column)[rows]
        differs = (values != values[first][inverse]) & (values != silent)
        if differs.any():
            bad = np.zeros(len(valid), bool)
            bad[rows[differs]] = True
            raise ValueError(
                f"{name} must be the same for all rows of one candidate; not so in "
                f"{_checks.rows(bad)}, by the first row of that candidate"
            )
