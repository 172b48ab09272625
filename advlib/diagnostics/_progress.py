"""What a run says besides its score: while it is going, and of how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from advlib import _checks
from advlib.diagnostics._aggregate import described as describe


def performance_summary(
    num_rollouts: int, num_turns: Sequence[float | None], latency_ms: Sequence[float | None]
) -> dict[str, float] | None:
    """Turns and latency over all rollouts that report them, masked ones too: they ran all the same.

    Args:
        num_rollouts: rollouts of the run.
        num_turns: one a rollout that reports anything; None where it has no number.
        latency_ms: likewise, in milliseconds.

    Returns:
        ``overall_observability_coverage``, the share of rollouts that report anything, and the
        mean, deviation, range and 90th percentile of the turns, mean and percentiles of the
        latency; None where no rollout reports anything.

    Raises:
        ValueError: the two have different lengths, or more entries than there are rollouts.
    """
    if len(num_turns) != len(latency_ms) or len(num_turns) > num_rollouts:
        raise ValueError(
            f"num_turns and latency_ms must have one length, at most {num_rollouts}; got "
            f"{len(num_turns)} and {len(latency_ms)}"
        )
    if not num_turns:
        return None
    result = {"overall_observability_coverage": len(num_turns) / num_rollouts}
    turns = np.array([value for value in num_turns if value is not None], np.float64)
    if turns.size:
        described = describe(turns)
        result |= {f"{what}_num_turns": described[what] for what in ("mean", "std")}
        result |= {"min_num_turns": float(turns.min()), "max_num_turns": float(turns.max())}
        result["p90_num_turns"] = float(np.quantile(turns, 0.9))
    latency = np.array([value for value in latency_ms if value is not None], np.float64)
    if latency.size:
        result["total_latency_mean_ms"] = float(latency.mean())
        for percent in (50, 90, 99):
            result[f"total_latency_p{percent}_ms"] = float(np.quantile(latency, percent / 100))
    return result


def progress_metrics(
    rewards: Any, masked: Any, *, failed: int = 0, omitted: int = 0, remaining: int | None = None
) -> dict[str, float | int]:
    """The score of a run that is still going, in percent, with what it does not say.

    ``reward`` is over every row with a number, placeholders of masked rows too, and
    ``reward_lower_bound`` over what is left as well. Only where something was masked, failed or
    omitted come ``masked_pct``, ``reward_unmasked``, ``failed`` and ``omitted``. What the run lost
    to its own infrastructure is ``reward_unmasked`` minus ``reward``.

    Args:
        rewards: (B,) what stands in the reward field of each row, NaN where nothing does.
        masked: (B,) bool.
        failed: failed attempts, which have no row here.
        omitted: rollouts that the run left out on purpose.
        remaining: rollouts that are still to come; without it there is no lower bound.

    Returns:
        The metrics that are defined, rounded to two decimals.

    Raises:
        ValueError: lengths differ, or a count is negative.
    """
    values = np.asarray(_checks.as_numpy("rewards", rewards), np.float64)
    hidden = _checks.as_numpy("masked", masked).astype(bool)
    if values.shape != hidden.shape or values.ndim != 1:
        raise ValueError(
            f"rewards and masked must have the same length; got {values.shape} and {hidden.shape}"
        )
    if min(failed, omitted, remaining or 0) < 0:
        raise ValueError("failed, omitted and remaining must not be negative")
    there = ~np.isnan(values)
    total, many = float(values[there].sum()), int(there.sum())
    result: dict[str, float | int] = {}
    if many:
        result["reward"] = round(100 * total / many, 2)
    if remaining is not None and many + remaining:
        result["reward_lower_bound"] = round(100 * total / (many + remaining), 2)
    out, used = int(hidden.sum()), there & ~hidden
    if out + failed + omitted == 0:
        return result
    if out:
        result["masked_pct"] = round(100 * out / (out + int(used.sum())), 2)
    if used.any():
        result["reward_unmasked"] = round(100 * float(values[used].sum()) / int(used.sum()), 2)
    if failed:
        result["failed"] = failed
    if omitted:
        result["omitted"] = omitted
    return result
