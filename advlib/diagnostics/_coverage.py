"""The account of a run: of the rollouts that were to be made, what became of each.

A mean over what was measured says nothing of what was not. The account says it, and it closes:

    expected = measured + masked + failed + omitted + unknown
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks


class Coverage(NamedTuple):
    """What became of the rollouts that were to be made.

    Attributes:
        expected: rollouts that were to be made; the sum of the five below.
        measured: their reward counts.
        masked: they ran to their end, and their reward is no measurement.
        failed: the rollout, its environment or its judge failed.
        omitted: the run ended and wrote no row of them, on purpose.
        unknown: no row of them, and nothing says why.
        environments: the same account of each environment.
    """

    expected: int
    measured: int
    masked: int
    failed: int
    omitted: int
    unknown: int
    environments: dict[str, Coverage]


def coverage(
    environments: Sequence[str],
    valid: Any,
    *,
    failed: Any = None,
    omitted: Any = None,
    absent: Mapping[str, int] | None = None,
    unknown: Mapping[str, int] | None = None,
) -> Coverage:
    """The account of a run, in total and by environment.

    Args:
        environments: (B,) name of each row's environment.
        valid: (B,) bool, the rewards that count.
        failed: (B,) bool, rows of failed attempts; none by default. One that is valid all the same
            was counted on purpose, and is measured.
        omitted: (B,) bool, rows that the run meant to leave out; none by default.
        absent: rollouts without a row that a finished run left out, by environment.
        unknown: rollouts without a row of which nothing is known, by environment.

    Returns:
        :class:`Coverage`; the environments in the order in which they appear.

    Raises:
        ValueError: lengths differ, or a count is negative.
    """
    names = np.array(list(environments), object)
    counts = _flags("valid", valid, len(names))
    broke = _flags("failed", failed, len(names)) & ~counts
    left = _flags("omitted", omitted, len(names)) & ~counts & ~broke
    out, lost = dict(absent or {}), dict(unknown or {})
    for what, given in (("absent", out), ("unknown", lost)):
        for name, many in given.items():
            if many < 0:
                raise ValueError(f"{what} must not be negative; got {many} of {name!r}")
    by_name = {
        name: _account(names == name, counts, broke, left, out.get(name, 0), lost.get(name, 0), {})
        for name in dict.fromkeys([*names.tolist(), *out, *lost])
    }
    everything = np.ones(len(names), bool)
    total = sum(out.values()), sum(lost.values())
    return _account(everything, counts, broke, left, *total, by_name)


def _account(
    rows: np.ndarray,
    valid: np.ndarray,
    failed: np.ndarray,
    omitted: np.ndarray,
    absent: int,
    unknown: int,
    environments: dict[str, Coverage],
) -> Coverage:
    measured, broke, left = (int((rows & flag).sum()) for flag in (valid, failed, omitted))
    masked = int(rows.sum()) - measured - broke - left
    expected = int(rows.sum()) + absent + unknown
    return Coverage(expected, measured, masked, broke, left + absent, unknown, environments)


def _flags(name: str, given: Any, size: int) -> np.ndarray:
    if given is None:
        return np.zeros(size, bool)
    flags = _checks.as_numpy(name, given)
    if flags.shape != (size,) or (flags.dtype != bool and size):
        raise ValueError(
            f"{name} must be {size} booleans, one a row; got shape {flags.shape}, {flags.dtype}"
        )
    return flags.astype(bool)


class MaskEffect(NamedTuple):
    """What masked rows would do to the others, had they voted as zeros.

    Attributes:
        num_measured: measured rows.
        moved: measured rows whose advantage would be another.
        mean_change: mean absolute change of those; None where there is none.
        max_change: largest absolute change; None where there is none.
        sign_flips: measured rows whose advantage would change its sign.
    """

    num_measured: int
    moved: int
    mean_change: float | None
    max_change: float | None
    sign_flips: int


def mask_effect(rewards: Any, group_ids: Any, valid: Any) -> MaskEffect:
    """How the advantages of measured rows would change if masked rows voted as zeros.

        A_i = r_i - S_g/n_g,   A'_i = r_i - S_g/(n_g + m_g)

    with the sum S_g and number n_g of measured rewards of a group, and its m_g masked rows. The
    advantage is that of the group mean.

    Args:
        rewards: (B,) rewards; those of masked rows are not looked at.
        group_ids: (B,) integers from 0.
        valid: (B,) bool, the rewards that count.

    Returns:
        :class:`MaskEffect`.

    Raises:
        ValueError: lengths differ.
    """
    counts = _flags("valid", valid, len(np.asarray(valid)))
    values = np.asarray(_checks.as_numpy("rewards", rewards), np.float64)
    ids = _checks.as_numpy("group_ids", group_ids)
    if values.shape != counts.shape or ids.shape != counts.shape:
        raise ValueError(
            "rewards, group_ids and valid must have the same length; got shapes "
            f"{values.shape}, {ids.shape} and {counts.shape}"
        )
    if not counts.any():
        return MaskEffect(0, 0, None, None, 0)
    groups, kept = ids[counts], values[counts]
    measured = np.bincount(groups, minlength=int(ids.max()) + 1)
    rows = np.bincount(ids, minlength=len(measured))
    sums = np.bincount(groups, kept, minlength=len(measured))
    now = kept - (sums / np.maximum(measured, 1))[groups]
    then = kept - (sums / np.maximum(rows, 1))[groups]
    # A mean of equal rewards is off by a rounding error, which is no change and no sign.
    noise = 1e-12 * max(1.0, float(np.abs(kept).max()))
    change = np.abs(then - now)
    moved = change > noise
    flipped = (now * then < 0) & (np.abs(now) > noise) & (np.abs(then) > noise)
    if not moved.any():
        return MaskEffect(len(kept), 0, None, None, 0)
    return MaskEffect(
        len(kept),
        int(moved.sum()),
        float(change[moved].mean()),
        float(change[moved].max()),
        int(flipped.sum()),
    )
