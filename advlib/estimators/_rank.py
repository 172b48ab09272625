"""Advantages from a ranking alone: tiers, the gaps between them, and confirmed hacks below."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from advlib import _checks
from advlib._batch import FlatBatch, bucket, core, flat_batch, warn_if_alone
from advlib._checks import Values
from advlib._mesh import Axis
from advlib._segments import segments
from advlib.estimators._standing import candidates, check_candidates, win_rates

HACK_GAP = 1.0  # a large gap, whatever the gaps between honest tiers are


def rank_margin(
    tiers: Values,
    margins: Values,
    group_ids: Values | None = None,
    *,
    hacks: Values | None = None,
    where: Values | None = None,
    num_groups: int | None = None,
    candidate_ids: Values | None = None,
    axis_name: Axis = None,
) -> Array:
    """Score tiers by the gaps between them, minus the mean score of the group.

        s_i = Σ_{k = t_i}^{t_last - 1} margin_k (+ 1 for honest samples where a hack is confirmed)
        A_i = s_i - mean_g(s)  over tiered samples

    A confirmed hack stands in a tier of its own, 1.0 below the last honest tier of its group. With
    two tiers a gap of 1 apart this is :func:`advlib.group_mean` of 0/1 rewards.

    Args:
        tiers: (B,) integers, 0 best, -1 untiered; below K.
        margins: (num_groups, K - 1) gaps, in reward units: ``margins[g, k]`` lies between tiers k
            and k + 1 of group g. Columns past a group's last tier do not count. (K - 1,) is taken
            for a single group. A tier without members still holds its gap.
        group_ids: (B,) integers in [0, num_groups); None for one group.
        hacks: (B,) booleans, confirmed hacks; their tier is not read.
        where: (B,) booleans; False where the sample was not judged.
        num_groups: number of groups, static. Default: the rows of ``margins``.
        candidate_ids: (B,) integers in [0, B), where a candidate has several rows (traces). The
            mean is over candidates; the first valid row speaks for all. Default: each row is one.
        axis_name: mesh axes over which the batch is split inside ``shard_map``. Default: all axes
            that the inputs vary over; ``()`` keeps to the shard.

    Returns:
        (B,) advantages in reward units; exactly 0 for untiered and masked samples, and in a group
        of one tier.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: shapes differ; in host arrays, a tier is outside [-1, K), a gap that counts is
            negative or not finite, an id is out of range, rows of one candidate disagree.

    Source: groupwise advantage redistribution, advantages mode.
    """
    gaps = _checks.array("margins", margins, "float")
    if gaps.ndim == 1 and group_ids is None:
        gaps = gaps[None]
    if gaps.ndim != 2:
        raise ValueError(f"margins must be (num_groups, K - 1); got shape {tuple(gaps.shape)}")
    if num_groups is None:
        num_groups = gaps.shape[0]
    batch = _batch(tiers, group_ids, hacks, where, num_groups, candidate_ids, axis_name)
    if gaps.shape[0] != batch.num_groups:
        raise ValueError(
            f"margins must have one row a group: num_groups is {batch.num_groups}, "
            f"margins has shape {tuple(gaps.shape)}"
        )
    _check_tiers(batch, gaps)
    return batch.run(_rank_margin, _pad_margins(gaps, batch))


@core
def _rank_margin(
    ids: Array,
    where: Array | None,
    tiers: Array,
    hacks: Array | None,
    candidate_ids: Array | None,
    margins: Array,
    *,
    num_groups: int,
    axes: Any,
) -> Array:
    groups, whose = candidates(segments(ids, where, num_groups, axes), candidate_ids)
    tiers = whose.shared(tiers)
    hacks = jnp.zeros_like(groups.valid) if hacks is None else whose.shared(hacks)
    num_tiers = margins.shape[1] + 1
    honest = groups.only((tiers >= 0) & (tiers < num_tiers) & ~hacks)
    tiered = groups.only(honest.valid | hacks)
    last = jnp.maximum(honest.max(tiers), 0)
    column = jnp.arange(num_tiers - 1, dtype=jnp.int32)
    gaps = jnp.where(column[None, :] < last[:, None], margins, 0)
    gaps = jnp.concatenate([gaps, jnp.zeros_like(last, dtype=gaps.dtype)[:, None]], axis=1)
    scores = jnp.flip(jnp.cumsum(jnp.flip(gaps, axis=1), axis=1), axis=1)
    row_scores = scores[groups.ids, jnp.where(honest.valid, tiers, 0)]
    hack_below = groups.rows(groups.only(hacks).max(hacks.astype(jnp.int32))) > 0
    row_scores = jnp.where(hacks, 0, row_scores + jnp.where(hack_below, HACK_GAP, 0))
    counted = tiered.only(whose.first)
    sums = counted.sum(jnp.stack([row_scores, jnp.ones_like(row_scores)], axis=-1))
    mean = sums[:, 0] / jnp.maximum(sums[:, 1], 1)
    return jnp.where(tiered.valid, row_scores - groups.rows(mean), 0)


def win_rate(
    tiers: Values,
    group_ids: Values | None = None,
    *,
    hacks: Values | None = None,
    where: Values | None = None,
    num_groups: int | None = None,
    candidate_ids: Values | None = None,
    axis_name: Axis = None,
) -> Array:
    """Share of the other tiered samples of its group that a sample beats, ties one half.

        w_i = (|worse than i| + (|tier of i| - 1)/2) / (n - 1),  and w = 1 where n = 1

    Args:
        tiers: (B,) integers, 0 best, -1 untiered.
        group_ids: (B,) integers in [0, num_groups); None for one group.
        hacks: (B,) booleans, confirmed hacks: a tier of their own below the last.
        where: (B,) booleans; False where the sample was not judged.
        num_groups: number of groups, static. Default: B (1 without ``group_ids``).
        candidate_ids: as in :func:`rank_margin`: candidates are counted, not rows.
        axis_name: as in :func:`rank_margin`.

    Returns:
        (B,) float32 in [0, 1]; 0 for untiered and masked samples.

    Raises:
        TypeError, ValueError: as :func:`rank_margin`.

    Source: groupwise advantage redistribution.
    """
    batch = _batch(tiers, group_ids, hacks, where, num_groups, candidate_ids, axis_name)
    return batch.run(_win_rate)


@core
def _win_rate(
    ids: Array,
    where: Array | None,
    tiers: Array,
    hacks: Array | None,
    candidate_ids: Array | None,
    *,
    num_groups: int,
    axes: Any,
) -> Array:
    groups, whose = candidates(segments(ids, where, num_groups, axes), candidate_ids)
    tiers = whose.shared(tiers)
    hacks = jnp.zeros_like(groups.valid) if hacks is None else whose.shared(hacks)
    tiered = groups.only((tiers >= 0) | hacks)
    below_all = jnp.iinfo(tiers.dtype).max
    rates = win_rates(tiered.only(whose.first), jnp.where(hacks, below_all, tiers))
    return jnp.where(tiered.valid, whose.shared_float(rates), 0)


def _batch(
    tiers: Values,
    group_ids: Values | None,
    hacks: Values | None,
    where: Values | None,
    num_groups: int | None,
    candidate_ids: Values | None,
    axis_name: Axis,
) -> FlatBatch:
    batch = flat_batch(
        [
            ("tiers", tiers, "int"),
            ("hacks", hacks, "bool"),
            ("candidate_ids", candidate_ids, "int"),
        ],
        group_ids,
        where,
        num_groups,
        axis_name,
    )
    check_candidates(batch)
    warn_if_alone(batch)
    return batch


def _check_tiers(batch: FlatBatch, gaps: _checks.Column) -> None:
    if not (batch.on_host and _checks.is_host(gaps)):
        return
    tiers, ids = np.asarray(batch.columns[0]), np.asarray(batch.ids)
    honest = batch.valid.copy()
    if batch.columns[1] is not None:
        honest &= ~np.asarray(batch.columns[1])
    _checks.ids_in_range("tiers", tiers, honest, gaps.shape[1] + 1, low=-1)
    last = np.zeros(gaps.shape[0], int)
    np.maximum.at(last, ids[honest], tiers[honest])
    counts = np.arange(gaps.shape[1]) < last[:, None]
    bad = (~np.isfinite(gaps) | (gaps < 0)) & counts
    if bad.any():
        group, gap = np.argwhere(bad)[0]
        raise ValueError(
            "margins must be finite and not negative; "
            f"margins[{group}, {gap}] is {gaps[group, gap]}"
        )


def _pad_margins(gaps: _checks.Column, batch: FlatBatch) -> _checks.Column:
    """Grow margins to the padded number of groups, and to few widths: neither counts."""
    if not batch.on_host:
        return gaps
    width = gaps.shape[1] if gaps.shape[1] < 2 else bucket(gaps.shape[1])
    wider = ((0, batch.num_segments - gaps.shape[0]), (0, width - gaps.shape[1]))
    return np.pad(gaps, wider) if _checks.is_host(gaps) else jnp.pad(gaps, wider)
