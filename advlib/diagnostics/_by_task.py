"""The published numbers task by task, all tasks at once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

STATISTICS = ("mean", "max", "min", "median", "std")


def by_task(
    pairs: Sequence[tuple[Hashable, int]],
    rows: np.ndarray,
    frame: Mapping[str, np.ndarray],
    expected: Mapping[Hashable, int],
) -> list[dict[str, Any]]:
    """One entry a task that has a row, in the order in which they first appear.

    Args:
        pairs: (B,) task and rollout index of each row.
        rows: which rows count.
        frame: columns of numbers, (B,) each, NaN where a row has none.
        expected: rollouts that were to be made of each task.
    """
    number: dict[Hashable, int] = {}
    ids = np.array([number.setdefault(pairs[row][0], len(number)) for row in rows.tolist()], int)
    order = np.lexsort(([pairs[row][1] for row in rows.tolist()], ids))
    rows, ids = rows[order], ids[order]
    sizes = np.bincount(ids, minlength=len(number))
    cells = {name: column[rows] for name, column in frame.items()}
    told = {name: _described(cell, ids, len(number)) for name, cell in cells.items()}
    result: list[dict[str, Any]] = []
    for task, at, end in zip(number, np.cumsum(sizes) - sizes, np.cumsum(sizes), strict=True):
        g = len(result)
        found: dict[str, Any] = {"task": task}
        alone = all(counts[g] < 2 for counts, _ in told.values())
        for name, (counts, values) in told.items():
            if counts[g]:
                found |= {f"{what}/{name}": values[what][g] for what in STATISTICS[:-1]}
            if counts[g] > 1:
                found[f"std/{name}"] = values["std"][g]
            elif alone and counts[g] == sizes[g]:
                found[f"std/{name}"] = 0.0
        many = int(sizes[g])
        result.append(
            found
            | {
                "num_rollouts": many,
                "expected_num_rollouts": expected[task],
                "missing_num_rollouts": expected[task] - many,
                "reward_profile_completion_pct": 100 * many / expected[task],
                "rollout_infos": _infos(pairs, rows[at:end].tolist(), frame),
            }
        )
    return result


def _infos(
    pairs: Sequence[tuple[Hashable, int]], rows: list[int], frame: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    return [
        {
            "rollout_id": f"{pairs[row][0]}:{pairs[row][1]}",
            "task": pairs[row][0],
            "rollout_index": pairs[row][1],
            **{name: float(c[row]) for name, c in frame.items() if not np.isnan(c[row])},
        }
        for row in rows
    ]


def _described(
    cell: np.ndarray, ids: np.ndarray, count: int
) -> tuple[list[int], dict[str, list[float]]]:
    """How many numbers each task has, and their statistics; 0 where there are too few of them."""
    known = ~np.isnan(cell)
    values, of = cell[known], ids[known]
    many = np.bincount(of, minlength=count)
    has = many > 0
    if not has.any():
        return many.tolist(), {}
    n = many[has]
    starts = np.cumsum(n) - n
    mean = np.add.reduceat(values, starts) / n
    squares = np.add.reduceat(np.square(values - np.repeat(mean, n)), starts)
    ordered = values[np.lexsort((values, of))]
    found = {
        "mean": mean,
        "max": np.maximum.reduceat(values, starts),
        "min": np.minimum.reduceat(values, starts),
        "median": (ordered[starts + (n - 1) // 2] + ordered[starts + n // 2]) / 2,
        "std": np.sqrt(squares / np.maximum(n - 1, 1)),
    }
    full = {name: np.zeros(count) for name in found}
    for name, of_tasks in full.items():
        of_tasks[has] = found[name]
    return many.tolist(), {name: of_tasks.tolist() for name, of_tasks in full.items()}
