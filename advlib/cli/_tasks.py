"""Tasks by rollouts: the table of rewards that a calibration looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from advlib.cli._errors import Refusal
from advlib.cli._notes import groups_with_several
from advlib.cli._samples import Samples
from advlib.cli._show import count, some

KEY = ("environment", "task")  # a task is the same one in every file, step and run


class Tasks(NamedTuple):
    """What was measured, task by task, in the order in which tasks first appear.

    Attributes:
        data: the rollouts; their groups are the tasks.
        rewards: (N, G) NaN where there is no measurement.
        prompts: (N,) the first text of each task; None where no rollout has one.
        counts: (N,) rollouts measured.
    """

    data: Samples
    rewards: np.ndarray
    prompts: list[str | None]
    counts: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """(N,) mean reward; NaN where nothing was measured."""
        total = np.nansum(self.rewards, axis=1)
        return np.where(self.counts > 0, total / np.maximum(self.counts, 1), np.nan)

    @property
    def errors(self) -> np.ndarray:
        """(N,) standard error of the mean reward; NaN below two rollouts."""
        off = np.where(np.isnan(self.rewards), 0.0, self.rewards - self.means[:, None])
        variance = (off**2).sum(axis=1) / np.maximum(self.counts - 1, 1)
        return np.where(self.counts > 1, np.sqrt(variance / np.maximum(self.counts, 1)), np.nan)


def tasks(data: Samples) -> Tasks:
    """The table of samples that are grouped by ``KEY``."""
    size = data.num_groups
    counts = np.bincount(data.group_ids[data.valid], minlength=size)
    rewards = np.full((size, max(1, int(counts.max(initial=0)))), np.nan)
    rows = np.flatnonzero(data.valid)
    order = rows[np.argsort(data.group_ids[rows], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    group = data.group_ids[order]
    rewards[group, np.arange(len(order)) - starts[group]] = data.rewards[order]
    texts: list[str | None] = [None] * size
    for row, text in enumerate(data.table["prompt"].to_pylist()):
        if text is not None and texts[data.group_ids[row]] is None:
            texts[data.group_ids[row]] = text
    return Tasks(data, rewards, texts, counts)


def texts(found: Tasks, used: np.ndarray) -> list[str]:
    """(N,) prompts; a task that is not used may be without one, and gets an empty one.

    Raises:
        Refusal: a task that is used has none.
    """
    without = [task for task, text in enumerate(found.prompts) if text is None and bool(used[task])]
    if without:
        ids = found.data.group_ids.tolist()
        places = (found.data.at(ids.index(task)) for task in without[:3])
        raise Refusal(
            f"{count(len(without), 'task')} of {int(used.sum()):,} have no prompt to compare: "
            f"{some(places)}; --kernel FILE.npy takes embeddings instead"
        )
    return [text or "" for text in found.prompts]


def notes(found: Tasks) -> Iterator[str]:
    """What makes the numbers of a calibration mean something else."""
    data = found.data
    for name, many, why in (
        ("policy", "policies", "σ² holds their differences too"),
        ("step", "training steps", "the policy changed between them, and σ² holds that too"),
    ):
        mixed = int(groups_with_several(data, name).sum())
        if mixed:
            yield (
                f"{count(mixed, 'task')} of {data.num_groups:,} "
                f"{'has' if mixed == 1 else 'have'} rollouts of several {many}; {why}"
            )
    several = _with_several_texts(data)
    if several:
        yield (
            f"{count(several, 'task')} with more than one prompt; the first one counts "
            "for all rollouts"
        )
    rewards = data.rewards[data.valid]
    if rewards.size and rewards.min() == rewards.max():
        yield f"every usable reward is {rewards[0]:g}: no baseline can be told from another"


def _with_several_texts(data: Samples) -> int:
    first: dict[int, str] = {}
    several = set()
    for task, text in zip(data.group_ids.tolist(), data.table["prompt"].to_pylist(), strict=True):
        if text is not None and first.setdefault(task, text) != text:
            several.add(task)
    return len(several)
