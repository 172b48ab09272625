"""The score over what was measured, its interval, and the score that hides what failed."""

from __future__ import annotations

from typing import Any

import numpy as np

from advlib.diagnostics import Coverage, clustered_mean

METHOD = "cluster-robust over tasks, Student's t, 95 %"


def score(rewards: np.ndarray, task_ids: np.ndarray, covered: Coverage | None) -> dict[str, Any]:
    """The mean of measured rewards as plain JSON values.

    Failures as zeros are over all rollouts of which it is known that they were not measured: what
    is unknown may still be running. ``lost`` is the gap, in points of 0 to 100 where every reward
    is between 0 and 1, else in the unit of the reward.

    Args:
        rewards: of the measured rollouts.
        task_ids: of the same.
        covered: the account; None where there is none.
    """
    found = clustered_mean(rewards, task_ids)
    result: dict[str, Any] = {
        "mean": found.mean,
        "interval": None if found.lower is None else [found.lower, found.upper],
        "interval_method": None if found.lower is None else METHOD,
        "no_interval": found.no_interval,
        "std_error": found.std_error,
        "rollouts": found.num_values,
        "tasks": found.num_clusters,
    }
    if covered is None:
        return result
    known = covered.expected - covered.unknown
    percent = bool(found.num_values and rewards.min() >= 0 and rewards.max() <= 1)
    zero = float(rewards.sum()) / known if known else None
    lost = None if found.mean is None or zero is None else found.mean - zero
    return {
        **result,
        "failures_as_zero": zero,
        "lost": None if lost is None else lost * (100 if percent else 1),
        "lost_unit": "points" if percent else "reward",
    }
