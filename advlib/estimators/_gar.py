"""Groupwise advantage redistribution (GAR), rewards mode: credit among the rewarded by quality.

A grader ranks the samples above their group's mean and confirms hacks. Confirmed hacks drop to the
group's lowest reward; each sample above the new mean gets its advantage times f, which grows with
its win rate; one factor λ a group restores the total; re-centring restores zero mean.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from advlib import _checks
from advlib._batch import GROUPS, ROWS, core, flat_batch, warn_if_alone
from advlib._checks import Values
from advlib._mesh import Axis
from advlib._segments import Centred, Segments, centred, segments, spread
from advlib.estimators._standing import candidates, check_candidates, win_rates


class GarCredit(NamedTuple):
    """Advantages of GAR's rewards mode and how they came about.

    Attributes:
        advantages: (B,) A″, in reward units; 0 where masked.
        win_rate: (B,) w of the samples above the mean: 1/2 where one of them is unranked; 0 below
            the mean and where masked.
        credit: (B,) f of Eq. 3 where it multiplies, above the mean; 0 elsewhere.
        scale: (num_groups,) λ of Eq. 3; 1 where there is nothing to redistribute.
    """

    advantages: Array
    win_rate: Array
    credit: Array
    scale: Array


def gar(
    rewards: Values,
    tiers: Values,
    group_ids: Values | None = None,
    *,
    hacks: Values | None = None,
    f_min: float = 0.5,
    lambda_max: float = 1.5,
    where: Values | None = None,
    num_groups: int | None = None,
    candidate_ids: Values | None = None,
    statistics: Literal["traces", "candidates"] | None = None,
    axis_name: Axis = None,
) -> GarCredit:
    """Redistribute the positive advantage of each group by a grader's ranking (Eq. 3).

        R_h ← min_g R  for confirmed hacks h;    A = R - mean_g(R);    P = {i : A_i > 0}
        f_i = f_min + (1 - f_min) w_i;    λ = min(λ_max, Σ_P A / Σ_P f A)
        A′_i = λ f_i A_i on P, A_i elsewhere;    A″ = A′ - mean_g(A′)

    w_i is the win rate among ranked samples: those above the mean of the original rewards that are
    not confirmed hacks and have a tier; 1 for a lone one, 1/2 for a member of P without a rank.
    A group whose candidates' original rewards are all equal is left at A. Where λ_max binds, the
    mass that is missing is spread over the group: a sample just below the mean can turn positive.

    Args:
        rewards: (B,) rewards, in any unit.
        tiers: (B,) integers, 0 best, -1 unranked; read only for the samples that are ranked.
        group_ids: (B,) integers in [0, num_groups); None for one group.
        hacks: (B,) booleans, confirmed hacks.
        f_min: least credit, in [0, 1]; 1 ignores the ranking.
        lambda_max: largest factor, at least 1.
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B (1 without ``group_ids``).
        candidate_ids: (B,) integers in [0, B), where a candidate has several rows (traces). Ranking
            always counts candidates; the first valid row of each speaks for it. Default: each row
            is a candidate.
        statistics: means, minimum and sums over "traces" (rows) or over "candidates" (first rows;
            the other rows take their own reward and their candidate's f). Default: "candidates"
            where ``candidate_ids`` are given, else "traces".
        axis_name: mesh axes over which the batch is split inside ``shard_map``. Default: all axes
            that the inputs vary over; ``()`` keeps to the shard.

    Returns:
        GarCredit.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: shapes differ; ``f_min`` or ``lambda_max`` is out of range; in host arrays, an
            id is out of range, a valid reward is not finite, rows of one candidate disagree.

    Source: groupwise advantage redistribution, Eq. 3.
    """
    f_min = _checks.number("f_min", f_min, 0, 1)
    lambda_max = _checks.number("lambda_max", lambda_max, 1)
    _checks.one_of("statistics", statistics, (None, "traces", "candidates"))
    batch = flat_batch(
        [
            ("rewards", rewards, "float"),
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
    return batch.run(
        _gar,
        f_min,
        lambda_max,
        results=GarCredit(ROWS, ROWS, ROWS, GROUPS),
        by_candidate=candidate_ids is not None and statistics != "traces",
    )


@core
def _gar(
    ids: Array,
    where: Array | None,
    rewards: Array,
    tiers: Array,
    hacks: Array | None,
    candidate_ids: Array | None,
    f_min: ArrayLike,
    lambda_max: ArrayLike,
    *,
    num_groups: int,
    axes: Any,
    by_candidate: bool,
) -> GarCredit:
    groups, whose = candidates(segments(ids, where, num_groups, axes), candidate_ids)
    tiers = whose.shared(tiers)
    hacks = jnp.zeros_like(groups.valid) if hacks is None else whose.shared(hacks)
    leads = groups.only(whose.first)
    counted = leads if by_candidate else groups
    original = centred(leads, rewards)
    mixed = groups.rows(~original.constant)
    passed = whose.shared(leads.valid & (original.deviation > _noise(groups, original)))
    floor = groups.rows(spread(counted, rewards).lowest)
    drops = hacks & mixed & jnp.isfinite(rewards)  # the floor must not hide an unmasked NaN
    dropped = jnp.where(drops, floor, rewards)
    stats = centred(counted, dropped, rows=groups.valid)
    deviation = stats.deviation  # A of Eq. 3, in units of the group's range

    positive = groups.valid & mixed & (deviation > _noise(groups, stats))
    ranked = groups.only(passed & ~hacks & (tiers >= 0))
    rates = whose.shared_float(win_rates(ranked.only(whose.first), tiers, rewards.dtype))
    rates = jnp.where(positive, jnp.where(ranked.valid, rates, 0.5), 0)
    credit = jnp.where(positive, f_min + (1 - f_min) * rates, 0)

    mass = jnp.where(positive, deviation, 0)
    totals = counted.sum(jnp.stack([mass, credit * mass], axis=-1))
    has_credit = totals[:, 1] > 0
    ratio = totals[:, 0] / jnp.where(has_credit, totals[:, 1], 1)
    scale = jnp.where(has_credit, jnp.minimum(ratio, lambda_max), lambda_max)
    scale = jnp.where(totals[:, 0] > 0, scale, 1)

    redistributed = jnp.where(positive, groups.rows(scale) * credit * deviation, deviation)
    sums = counted.sum(jnp.stack([redistributed, jnp.ones_like(deviation)], axis=-1))
    centre = sums[:, 0] / jnp.maximum(sums[:, 1], 1)
    advantages = (redistributed - groups.rows(centre)) * groups.rows(stats.scale)
    return GarCredit(jnp.where(groups.valid, advantages, 0), rates, credit, scale)


def _noise(groups: Segments, stats: Centred) -> Array:
    """How far off a reward that equals the mean may seem, by rounding, in units of the range."""
    rounding = 32 + 4 * jnp.abs(stats.mean) / stats.scale
    return groups.rows(jnp.finfo(stats.mean.dtype).eps * rounding)


def hack_floor(
    rewards: Values,
    hacks: Values,
    group_ids: Values | None = None,
    *,
    where: Values | None = None,
    num_groups: int | None = None,
    axis_name: Axis = None,
) -> Array:
    """Drop confirmed hacks to the lowest reward of their group.

        R_h ← min_{j ∈ g} R_j  over the original valid rewards, the hacks' own included

    Args:
        rewards: (B,) rewards, in any unit.
        hacks: (B,) booleans, confirmed hacks.
        group_ids: (B,) integers in [0, num_groups); None for one group.
        where: (B,) booleans; False where the reward is not a measurement.
        num_groups: number of groups, static. Default: B (1 without ``group_ids``).
        axis_name: as in :func:`gar`.

    Returns:
        (B,) rewards; 0 where masked, to be used with the same ``where``. The floor is a constant:
        no gradient goes from a dropped hack to the sample that holds the minimum.

    Raises:
        TypeError, ValueError: as :func:`advlib.group_mean`.

    Source: groupwise advantage redistribution, the step before Eq. 3.
    """
    batch = flat_batch(
        [("rewards", rewards, "float"), ("hacks", hacks, "bool")],
        group_ids,
        where,
        num_groups,
        axis_name,
    )
    return batch.run(_hack_floor)


@core
def _hack_floor(
    ids: Array, where: Array | None, rewards: Array, hacks: Array, *, num_groups: int, axes: Any
) -> Array:
    groups = segments(ids, where, num_groups, axes)
    floor = groups.rows(spread(groups, rewards).lowest)
    return jnp.where(groups.valid, jnp.where(hacks, floor, rewards), 0)
