"""The scenes of ``advlib demo``: sample files, what to see in them, and their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

import numpy as np

from advlib.adapters import schema
from advlib.cli._estimators import ESTIMATORS, advantages, baselines, hacks, tiers
from advlib.cli._samples import Samples, samples

_HEADS = {
    "group_mean": "group\nmean",
    "grpo": "grpo",
    "leave_one_out": "leave\n1 out",
    "batch_mean": "batch\nmean",
    "batch_leave_one_out": "batch\nl.o.o.",
    "max_rl": "max_rl",
    "gar": "gar",
    "rank_margin": "rank\nmargin",
}


class Scene(NamedTuple):
    """One set of sample files, and one thing to see in each of its groups."""

    title: str
    files: tuple[str, ...]
    sights: tuple[str, ...]


SCENES = (
    Scene(
        "verifiers results: 12 measured, batch mean 0.5",
        ("arithmetic_results.jsonl",),
        (
            "One of four is right. The group mean is 0.25. Without itself, a is compared with 0 "
            "and each other one with 1/3.",
            "c's model call broke: the 0 in its reward field is not a measurement. c gets 0, and "
            "the others get what they would get if its row were deleted.",
            "Alone in its group, a has nothing to be compared with. Only the two batch baselines, "
            "which compare with the whole file, have a word on it.",
            "All are right, so the group has no signal. Against the batch mean of 0.5 it has.",
        ),
    ),
    Scene(
        "prime-rl traces, a grader's verdicts beside them: 14 measured, batch mean 0.5",
        ("code_repair_traces.jsonl", "code_repair_annotations.jsonl"),
        (
            "c passes by deleting the test. gar drops it to the lowest reward, so the mean falls "
            "to 0.5, and shares the credit by tier. rank_margin knows the tiers alone: a stands "
            "0.5 above b and e, c 1 below them; d and f were not ranked.",
            "Nobody passes, so rewards say nothing. The ranking still does: a gap of 0.5 below "
            "the first tier and below the second.",
            "a and b are two traces of one episode, one candidate for the grader, and so are d "
            "and e. f's episode failed before it left a trace.",
        ),
    ),
    Scene(
        "NeMo Gym rollouts, failures beside them: 6 measured, batch mean 0.75",
        ("orchard_rollouts.jsonl", "orchard_rollouts_failures.jsonl"),
        (
            "c is masked, so the 1 in its reward field counts for nothing. The judge failed on e: "
            "its 0 is not a measurement either. The mean of a, b and d is 1, not 0.8.",
            "c has no reward, which is not a reward of 0. e never ran. d names a failure that it "
            "recovered from, and counts.",
        ),
    ),
)


def load(scene: Scene) -> Samples:
    """The rollouts of a scene."""
    from advlib import adapters

    with resources.as_file(resources.files("advlib.samples")) as folder:
        return samples(adapters.read([str(folder / name) for name in scene.files]))


def score_all(data: Samples) -> dict[str, np.ndarray]:
    """Advantages by name, of every estimator that has what it needs and can be followed by hand."""
    import warnings

    import advlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", advlib.AdvantageWarning)
        return {
            name: advantages(name, data, {})
            for name, estimator in ESTIMATORS.items()
            if name in _HEADS
            and not (estimator.needs and data.table[estimator.needs].null_count == len(data.table))
        }


def tables(scene: Scene) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Heads and rows of one table a group."""
    from advlib.cli._show import number

    data = load(scene)
    scored = score_all(data)
    base = baselines("group_mean", data, {}, scored["group_mean"])
    written = data.table["reward"].to_pylist()
    heads = ("", "", "reward", *(_HEADS[name] for name in scored), "base\nline")
    for group in range(data.num_groups):
        rows = []
        for letter, row in zip(
            "abcdefgh", np.flatnonzero(data.group_ids == group).tolist(), strict=False
        ):
            values = (_signed(float(column[row])) for column in scored.values())
            baseline = number(float(base[row]), digits=3)
            rows.append((letter, _remark(data, row), number(written[row]), *values, baseline))
        yield heads, rows


def _signed(value: float) -> str:
    """Three digits, so that the points stand below each other; a bare 0 is exactly zero."""
    return f"{value:+.3f}" if value else "0"


def _remark(data: Samples, row: int) -> str:
    if data.reasons[row] is not None:
        kind = data.table["failure_kind"][row].as_py()
        return str(kind if kind and data.reasons[row] == schema.MASKED else data.reasons[row])
    if hacks(data)[row]:
        return "hack"
    if tiers(data)[row] >= 0:
        return f"tier {tiers(data)[row]}"
    return "" if data.table["tier"].null_count == len(data.table) else "no tier"
