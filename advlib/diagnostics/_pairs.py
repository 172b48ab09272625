"""Two arms scored on the same items: brought together, or refused."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from advlib import _checks

Ids = tuple[Sequence[Hashable], Sequence[Hashable]]


def differences(
    treatment: Any, baseline: Any, bounds: tuple[float, float], ids: Ids | None
) -> np.ndarray:
    """Treatment minus baseline, item by item.

    Args:
        treatment: (n,) scores within the bounds.
        baseline: (n,) scores of the same items.
        bounds: lowest and highest possible score.
        ids: the items' ids, those of the treatment and those of the baseline; None where the two
            are in the same order.

    Returns:
        (n,) float64, in the order of the treatment.

    Raises:
        TypeError: scores are no numbers.
        ValueError: the items do not pair up, a score is missing or outside the bounds.
    """
    low, high = bounds
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"bounds must be two finite numbers, low < high; got {bounds!r}")
    arms = [
        _scores(name, value, low, high)
        for name, value in (("treatment", treatment), ("baseline", baseline))
    ]
    if len(arms[0]) != len(arms[1]):
        raise ValueError(
            "treatment and baseline must score the same items; "
            f"got {len(arms[0])} and {len(arms[1])} scores"
        )
    if not len(arms[0]):
        raise ValueError("treatment and baseline must score at least one item; got none")
    if ids is not None:
        arms[1] = arms[1][_order(ids, len(arms[0]))]
    return arms[0] - arms[1]


def _scores(name: str, value: Any, low: float, high: float) -> np.ndarray:
    scores = _checks.as_numpy(name, value)
    if scores.ndim != 1:
        raise ValueError(f"{name} must have one dimension, (items,); got shape {scores.shape}")
    if scores.dtype.kind not in "biuf":
        if not scores.size:
            return np.zeros(0)
        raise TypeError(f"{name} must be numbers; got dtype {scores.dtype}")
    scores = scores.astype(np.float64)
    missing = ~np.isfinite(scores)
    if missing.any():
        raise ValueError(
            f"{name} must be measured for every item; {_checks.rows(missing)}: "
            f"{scores[missing][0]}. Without the score there is no verdict"
        )
    outside = (scores < low) | (scores > high)
    if outside.any():
        raise ValueError(
            f"{name} must lie in bounds [{low:g}, {high:g}]; {_checks.rows(outside)}: "
            f"{scores[outside][0]:g}"
        )
    return scores


def _order(ids: Ids, count: int) -> list[int]:
    """Where the baseline holds each item of the treatment."""
    if not isinstance(ids, tuple) or len(ids) != 2:
        raise TypeError("ids must be a pair: the ids of the treatment, the ids of the baseline")
    places: list[dict[Hashable, int]] = []
    for name, of_arm in zip(("treatment", "baseline"), ids, strict=True):
        keys = of_arm.tolist() if hasattr(of_arm, "tolist") else list(of_arm)
        if len(keys) != count:
            raise ValueError(f"ids of the {name} must be one an item, {count}; got {len(keys)}")
        seen: dict[Hashable, int] = {}
        for place, key in enumerate(keys):
            if key is None or key != key:
                raise ValueError(f"ids of the {name}: row {place} has none")
            if key in seen:
                raise ValueError(
                    f"ids of the {name}: {key!r} stands in rows {seen[key]} and {place}; "
                    "an item is scored once"
                )
            seen[key] = place
        places.append(seen)
    treatment, baseline = places
    alone = [key for key in treatment if key not in baseline]
    if alone:
        raise ValueError(
            f"treatment and baseline must score the same items; {len(alone)} of the treatment are "
            f"not in the baseline: {alone[0]!r} first"
        )
    return [baseline[key] for key in treatment]
