"""How often one of k rollouts passes, from n rollouts of each task, in percent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Scores = Sequence[float]


class PassAtK(NamedTuple):
    """What several rollouts a task say about k of them, in percent where nothing else is said.

    Attributes:
        pass_at: k to the chance that one of k passes, over tasks with at least k rollouts.
        average_of: k to the mean of the first k rollouts of each task, over tasks.
        majority_at: k to the score of the most frequent answer of the first k; empty without
            answers.
        per_sample: mean over tasks of the rollout at each place.
        std_dev_across_runs: k to the sample deviation of the first k of ``per_sample``, from k = 2.
        std_err_across_runs: the same divided by √k.
        avg_sample_std_dev: k to the mean, over tasks, of the sample deviation of the first k
            scores, in units of the score.
        num_tasks: k to the tasks that ``pass_at`` is over.
    """

    pass_at: dict[int, float]
    average_of: dict[int, float]
    majority_at: dict[int, float]
    per_sample: list[float]
    std_dev_across_runs: dict[int, float]
    std_err_across_runs: dict[int, float]
    avg_sample_std_dev: dict[int, float]
    num_tasks: dict[int, int]


def pass_at_k(
    scores: Sequence[Scores],
    *,
    answers: Sequence[Sequence[Any]] | None = None,
    ks: Sequence[int] | None = None,
) -> PassAtK:
    """Pass@k and its relatives, from the scores of the measured rollouts of each task.

        pass@k = mean over tasks of 1 - C(wrong, k) / C(n, k)

    where all scores of a task are 0 or 1; otherwise a task's value is the largest of its first k.
    Tasks with fewer than k rollouts are left out of pass@k, and the other numbers take what there
    is. A place is a place in the given lists: where the first rollout of a task was masked, its
    second one stands first.

    Args:
        scores: one sequence a task, in the order of the rollouts; booleans count as 0 and 1.
        answers: what each rollout answered, None for no answer; hashable. The majority is of pairs
            of an answer and its score, and ties share.
        ks: which k; every k up to the largest number of rollouts by default.

    Returns:
        :class:`PassAtK`, with empty parts where there is no task.

    Raises:
        ValueError: a score is not finite, k is below 1, or answers and scores differ in shape.

    Source: M. Chen et al., "Evaluating large language models trained on code", 2021, eq. 1.
    """
    tasks = [np.asarray([float(score) for score in task], np.float64) for task in scores]
    for nth, task in enumerate(tasks):
        if not np.isfinite(task).all():
            raise ValueError(f"scores must be finite; task {nth} has {task.tolist()[:8]}")
    if answers is not None and [len(a) for a in answers] != [len(t) for t in tasks]:
        raise ValueError("answers must have one entry a score, task by task")
    longest = max(map(len, tasks), default=0)
    wanted = range(1, longest + 1) if ks is None else sorted(set(ks))
    if any(k < 1 for k in wanted):
        raise ValueError(f"k must be at least 1; got {min(wanted)}")
    tasks_with = [task for task in tasks if len(task)]
    chances = [_chances(task) for task in tasks_with]
    per_sample = _by_place(tasks_with)
    result = PassAtK({}, {}, {}, per_sample, {}, {}, {}, {})
    for k in wanted:
        there = [chance[k - 1] for chance in chances if len(chance) >= k]
        if there:
            result.pass_at[k] = 100 * float(np.mean(there))
            result.num_tasks[k] = len(there)
        if tasks_with:
            result.average_of[k] = 100 * float(np.mean([task[:k].mean() for task in tasks_with]))
        if answers is not None and tasks_with:
            votes = [_majority(a[:k], t[:k]) for a, t in zip(answers, tasks, strict=True) if len(t)]
            result.majority_at[k] = 100 * float(np.mean(votes))
        runs = per_sample[:k]
        if k >= 2 and len(runs) >= 2:
            deviation = float(np.std(runs, ddof=1))
            result.std_dev_across_runs[k] = deviation
            result.std_err_across_runs[k] = deviation / len(runs) ** 0.5
        spreads = [task[:k].std(ddof=1) for task in tasks_with if len(task[:k]) >= 2]
        if k >= 2 and spreads:
            result.avg_sample_std_dev[k] = float(np.mean(spreads))
    return result


def _chances(task: np.ndarray) -> np.ndarray:
    """A task's value at k = 1, 2, ..., n."""
    if not np.isin(task, (0.0, 1.0)).all():
        return np.maximum.accumulate(task)
    # C(w, k) / C(n, k) is a product of k fractions, each at most 1, so nothing overflows.
    drawn = np.arange(len(task))
    wrong = float((task == 0).sum())
    chances: np.ndarray = 1 - np.cumprod(np.maximum(wrong - drawn, 0) / (len(task) - drawn))
    return chances


def _by_place(tasks: Sequence[np.ndarray]) -> list[float]:
    """The mean over tasks at each place, in percent."""
    if not tasks:
        return []
    places = np.concatenate([np.arange(len(task)) for task in tasks])
    sums = np.bincount(places, np.concatenate(tasks))
    means: list[float] = (100 * sums / np.bincount(places)).tolist()
    return means


def _majority(answers: Sequence[Any], task: np.ndarray) -> float:
    votes = Counter(
        (answer, score)
        for answer, score in zip(answers, task.tolist(), strict=True)
        if answer is not None
    )
    if not votes:
        return 0.0
    most = max(votes.values())
    return float(np.mean([score for (_, score), many in votes.items() if many == most]))
