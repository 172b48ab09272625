"""What a run found: one document that the terminal shows and ``--json`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from advlib.cli._samples import Samples
from advlib.diagnostics._policy import COUNTED


class Scored(NamedTuple):
    """Samples with their advantages.

    Attributes:
        data: what was scored.
        estimator: its name.
        options: the options it was given.
        advantages: (B,) float64.
        baselines: (B,) float64, NaN where there is none.
    """

    data: Samples
    estimator: str
    options: Mapping[str, Any]
    advantages: np.ndarray
    baselines: np.ndarray


def coverage(data: Samples) -> dict[str, Any]:
    """How many rollouts were measured, and why the others were not."""
    kinds = data.table["failure_kind"].to_pylist()
    bad = np.flatnonzero(~data.valid).tolist()
    reasons = Counter(str(data.reasons[row]) for row in bad)
    return {
        "rollouts": len(data.valid),
        "valid": int(data.valid.sum()),
        "invalid": dict(reasons.most_common()),
        "invalid_by_failure_kind": dict(Counter(kinds[r] for r in bad if kinds[r]).most_common()),
        "counted_as_zero": dict(data.counted),
        "rows_by_policy": dict(data.ruled),
    }


def groups(data: Samples) -> dict[str, Any]:
    """Sizes of the groups, and how many of them carry no signal."""
    import jax

    import advlib

    rows = np.bincount(data.group_ids, minlength=data.num_groups)
    valid = np.bincount(data.group_ids[data.valid], minlength=data.num_groups)
    with jax.enable_x64(True):
        constant = advlib.constant_groups(
            data.rewards, data.group_ids, where=data.valid, num_groups=data.num_groups
        )
    return {
        "count": data.num_groups,
        "sizes": _histogram(rows),
        "valid_sizes": _histogram(valid),
        "constant": int(np.asarray(constant).sum()),
        "singletons": int((valid == 1).sum()),
        "empty": int((valid == 0).sum()),
    }


def statistics(values: np.ndarray) -> dict[str, float | int | None]:
    """Count, mean, standard deviation (ddof 1), minimum, maximum; None where undefined."""
    some = values.size > 0
    return {
        "count": int(values.size),
        "mean": float(values.mean()) if some else None,
        "std": float(values.std(ddof=1)) if values.size > 1 else None,
        "min": float(values.min()) if some else None,
        "max": float(values.max()) if some else None,
    }


def advantage_statistics(scored: Scored) -> dict[str, float | int | None]:
    """Statistics over the valid rows, and the share of them that is exactly zero."""
    values = scored.advantages[scored.data.valid]
    share = float((values == 0).mean()) if values.size else None
    return {**statistics(values), "exact_zero_share": share}


def reason_of(data: Samples, row: int) -> str | None:
    """Why a row is not valid, with what failed where the file says so."""
    reason = data.reasons[row]
    kind = data.table["failure_kind"][row].as_py()
    if reason is None or kind is None or reason.startswith(COUNTED):
        return reason
    return f"{reason}: {kind}"


def _histogram(sizes: np.ndarray) -> dict[str, int]:
    values, counts = np.unique(sizes, return_counts=True)
    return {str(size): int(n) for size, n in zip(values.tolist(), counts.tolist(), strict=True)}
