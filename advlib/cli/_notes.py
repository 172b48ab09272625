"""Warnings: what a careful reader of the numbers would want to be told, each as one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from advlib.adapters import report
from advlib.cli._estimators import ESTIMATORS, tiers
from advlib.cli._samples import Samples, known_kinds
from advlib.cli._show import count, number, some

_MIXED = ("environment", "policy", "source_file", "step")


def notes(
    data: Samples,
    *,
    estimator: str | None = None,
    fallback: str = "zero",
    group_by: Sequence[str] = ("group",),
    group_size: int | None = None,
) -> list[str]:
    """Everything about these samples that should not go unsaid.

    Args:
        data: the samples.
        estimator: the one they are scored with; None where they are only looked at.
        fallback: its fallback.
        group_by: the columns that name a group.
        group_size: rollouts a group is declared to have.
    """
    found = [*unused(data), *_nothing(data)]
    by_group = estimator is None or not ESTIMATORS[estimator].whole_batch
    if by_group:
        if data.valid.any():
            found += _alone(data, estimator, fallback)
        found += [*_mixed(data, group_by), *_equal_tasks(data)]
    found += _declared(data, group_size) if group_size is not None else _declared_by_file(data)
    if estimator is not None and ESTIMATORS[estimator].needs == "tier":
        found += _ungraded(data, estimator)
    return found


def unused(data: Samples) -> Iterator[str]:
    """Kinds of the policy for failures that no row has."""
    for kind, action in data.policy.kinds.items():
        if data.ruled[kind]:
            continue
        told = f"{kind}={action}: no row has that failure kind or reason; there are: "
        told += known_kinds(data)
        texts = pc.sum(pc.equal(data.table["failure_reason"], kind)).as_py()
        if texts:
            told += (
                f"; {count(texts, 'row')} {'has' if texts == 1 else 'have'} it as free text in "
                "failure_reason, which decides nothing"
            )
        yield told


def _nothing(data: Samples) -> Iterator[str]:
    rewards = data.rewards[data.valid]
    if not rewards.size:
        yield "no rollout has a usable reward, so every advantage is 0"
    elif rewards.size > 1 and rewards.min() == rewards.max():
        yield f"every usable reward is {number(float(rewards[0]), digits=6)}: there is no signal"


def _alone(data: Samples, estimator: str | None, fallback: str) -> Iterator[str]:
    counts = np.bincount(data.group_ids[data.valid], minlength=data.num_groups)
    if counts.max() >= 2 or fallback != "zero":
        return
    told = "no group has two valid rollouts to compare"
    if estimator is not None:
        told += ", so every advantage is 0"
    if _tasks_repeat(data):
        told += "; --group-by environment,task puts rollouts of one task together"
    if estimator is None or "fallback" in ESTIMATORS[estimator].options:
        told += "; --fallback batch_leave_one_out compares with the whole batch"
    yield told


def _tasks_repeat(data: Samples) -> bool:
    codes = [_codes(data.table[name])[0][data.valid] for name in ("environment", "task")]
    return bool((np.unique(np.stack(codes), axis=1, return_counts=True)[1] > 1).any())


def _mixed(data: Samples, group_by: Sequence[str]) -> Iterator[str]:
    mixed = {name: groups_with_several(data, name) for name in _MIXED if name not in group_by}
    mixed = {name: groups for name, groups in mixed.items() if groups.any()}
    if not mixed:
        return
    plural = {"policy": "policies", "source_file": "files"}
    what = " and ".join(plural.get(name, name + "s") for name in mixed)
    groups = np.flatnonzero(np.any(list(mixed.values()), axis=0))
    apart = "source_file" if "source_file" in mixed else next(iter(mixed))
    yield (
        f"{count(int(groups.size), 'group')} of {data.num_groups:,} "
        f"{'mixes' if groups.size == 1 else 'mix'} several {what}, such as "
        f"{data.group_name(int(groups[0]))}; to keep them apart: "
        f"--group-by {','.join([*group_by, apart])}"
    )


def _equal_tasks(data: Samples) -> Iterator[str]:
    if groups_with_several(data, "environment").any():
        return  # said by _mixed, with what to do
    environments, _ = _codes(data.table["environment"])
    raw = pc.replace_substring_regex(data.table["task"], "[:@].*", "")  # ids without a hash
    tasks, _ = _codes(raw)
    pairs = np.unique(np.stack([tasks, environments]), axis=1)
    shared = np.flatnonzero(np.bincount(pairs[0]) > 1)
    if shared.size:
        names = (raw[int(np.argmax(tasks == task))].as_py() for task in shared)
        yield (
            f"{count(int(shared.size), 'task id')} in more than one environment: {some(names)}; "
            "no group holds two environments, so they are not compared"
        )


def groups_with_several(data: Samples, name: str) -> np.ndarray:
    """(num_groups,) bool: the valid rows of the group have two or more values in the column."""
    column = data.table[name]
    if name == "source_file":  # a sidecar of failures is part of the file beside it
        column = pc.replace_substring(column, "_failures.jsonl", ".jsonl")
    codes, present = _codes(column)
    use = data.valid & present
    pairs = np.unique(np.stack([data.group_ids[use], codes[use]]), axis=1)
    return np.bincount(pairs[0], minlength=data.num_groups) > 1


def _declared(data: Samples, size: int) -> Iterator[str]:
    rows = np.bincount(data.group_ids, minlength=data.num_groups)
    other = np.flatnonzero(rows != size)
    if other.size:
        named = some((f"{data.group_name(g)} has {rows[g]}" for g in other.tolist()), limit=3)
        yield (
            f"{count(int(other.size), 'group')} of {data.num_groups:,} "
            f"{'has' if other.size == 1 else 'have'} not the declared {size} rollouts: {named}; "
            "the true counts are used"
        )


def _declared_by_file(data: Samples) -> Iterator[str]:
    declared = {f.path: f.group_size for f in report(data.table).files if f.group_size is not None}
    if not declared:
        return
    files, _ = _codes(data.table["source_file"])
    pairs, sizes = np.unique(np.stack([files, data.group_ids]), axis=1, return_counts=True)
    for file, row in zip(*np.unique(files, return_index=True), strict=True):
        path = data.table["source_file"][int(row)].as_py()
        inside = sizes[pairs[0] == file]
        other = int((inside != declared.get(path)).sum()) if path in declared else 0
        if other:
            yield (
                f"{path} declares {count(declared[path], 'rollout')} a task, and "
                f"{count(other, 'group')} of {len(inside):,} in it "
                f"{'has' if other == 1 else 'have'} another number; the true counts are used"
            )


def _ungraded(data: Samples, estimator: str) -> Iterator[str]:
    graded = np.zeros(data.num_groups, bool)
    graded[data.group_ids[tiers(data) >= 0]] = True
    without = int((~graded).sum())
    if without:
        effect = (
            "their rollouts get 0" if estimator == "rank_margin" else "all credit is equal there"
        )
        yield f"{count(without, 'group')} of {data.num_groups:,} without any tier: {effect}"


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Equal values get equal integers; and which rows have a value."""
    encoded = pa.chunked_array([column.combine_chunks()]).dictionary_encode().combine_chunks()
    present = np.asarray(encoded.is_valid())
    return np.asarray(encoded.indices.fill_null(0)), present
