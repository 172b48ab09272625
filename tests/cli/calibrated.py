"""Rollout files for a calibration, of tasks whose prompts tell their pass rate or do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

KINDS = (
    ("river stone bridge water boat ferry", 0.85),
    ("apples market price dollars seller stall", 0.15),
)


def lines(num_tasks: int, rollouts: int = 4, *, telling: bool = True, seed: int = 0) -> list[dict]:
    """One verifiers row a rollout; kinds of tasks alternate."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(num_tasks):
        words, rate = KINDS[task % 2]
        chance = rate if telling else float(rng.random())
        prompt = f"{' '.join(rng.permutation(words.split())[:4])} item {'xyz'[task % 3] * 3}"
        rows += [
            {
                "example_id": task,
                "prompt": prompt,
                "completion": "",
                "reward": float(rng.random() < chance),
            }
            for _ in range(rollouts)
        ]
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
