"""Where the time of a step goes, by arm."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advlib.experiments._folder import read_lines

PARTS = ("sample", "reference", "score", "features", "advantage", "update", "record")
HEADS = ("arm", *PARTS, "a step", "of it, the estimator")


def rows(record: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, ...]]:
    """One row an arm: medians over its steps and seeds, in milliseconds.

    The first step of each seed compiles and is left out where there are others. What no step has
    is a dash. The estimator is the advantages, and the features of the kernel where an arm trains
    with one; the other arms take them for the metrics alone.
    """
    for arm in record["arms"]:
        steps: list[dict[str, Any]] = []
        for seed in record["spec"]["seeds"]:
            path = folder / "arms" / arm["name"] / f"seed-{seed}" / "times.jsonl"
            found = read_lines(path) if path.exists() else []
            steps += found[1:] or found
        if not steps:
            continue
        taken = {
            part: statistics.median(step.get(part, 0.0) for step in steps)
            for part in PARTS
            if any(part in step for step in steps)
        }
        total = statistics.median(sum(step.get(part, 0.0) for part in PARTS) for step in steps)
        parts = ("features", "advantage") if arm["advantage"] == "gs1" else ("advantage",)
        own = sum(taken.get(part, 0.0) for part in parts)
        yield (
            arm["name"],
            *(f"{1000 * taken[part]:.1f} ms" if part in taken else "-" for part in PARTS),
            f"{1000 * total:.1f} ms",
            f"{own / total:.1%}" if total > 0 else "-",
        )
