"""What became of each rollout that was to be made, as far as files tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from advlib import adapters, diagnostics
from advlib.adapters import schema
from advlib.adapters._files import SIDECAR, plain_name
from advlib.cli._samples import Samples
from advlib.cli._show import count, plain

INPUTS, DECLARED, ROWS = "the run's inputs", "the declared group size", "the rows themselves"


class Absent(NamedTuple):
    """Rollouts of one environment that have no row.

    Attributes:
        environment: their environment.
        state: "omitted" or "unknown".
        rollouts: how many.
        where: the first places that say that they were to be made.
        tasks: how many of each task.
    """

    environment: str
    state: str
    rollouts: int
    where: list[str]
    tasks: Mapping[str, int]


class Account(NamedTuple):
    """The account of all rollouts.

    Attributes:
        coverage: the numbers.
        became: (B,) one word a row: measured, masked, failed, omitted; "outside" for what is no
            rollout of the policy and is in no number.
        absent: rollouts without a row.
        expected_from: environment to what says how many rollouts there should be.
        notes: what the numbers do not say.
    """

    coverage: diagnostics.Coverage
    became: np.ndarray
    absent: list[Absent]
    expected_from: dict[str, str]
    notes: list[str]


def account(data: Samples) -> Account:
    """The account of samples that were read with `details`."""
    table = data.table
    outside = _flags(pc.equal(table["invalid_reason"], schema.NOT_TRAINABLE))
    source = table["mask_source"]
    left = _flags(pc.match_substring(source, "no_persist"))
    sidecar = np.isin(_names(table, "source_file"), _sidecars(table))
    broke = _flags(pc.match_substring(source, "failure_class"))
    broke = (broke | sidecar | _flags(pc.equal(table["invalid_reason"], schema.FAILED))) & ~left
    became = np.where(broke, "failed", np.where(left, "omitted", "masked")).astype(object)
    became[data.valid] = "measured"
    became[outside] = "outside"
    inside = ~outside
    environments = _names(table, "environment")
    absent = [*_by_inputs(table), *_by_size(data)]
    found = diagnostics.coverage(
        environments[inside],
        data.valid[inside],
        failed=(became == "failed")[inside],
        omitted=(became == "omitted")[inside],
        absent=_sum(absent, "omitted"),
        unknown=_sum(absent, "unknown"),
    )
    expected_from = _expected_from(table, environments, list(found.environments))
    return Account(found, became, absent, expected_from, list(_notes(table, outside)))


def _sum(absent: list[Absent], state: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in absent:
        if one.state == state:
            total[one.environment] = total.get(one.environment, 0) + one.rollouts
    return total


def _by_inputs(table: pa.Table) -> Iterator[Absent]:
    for file in adapters.report(table).files:
        if (meant := file.dispatched) is not None:
            state = "omitted" if meant.ended else "unknown"
            for environment, tally in meant.absent.items():
                where = [f"{meant.path}:{line}" for line in tally.lines]
                of = meant.absent_of[environment]
                yield Absent(environment, state, tally.count, where, of)


def _by_size(data: Samples) -> Iterator[Absent]:
    """Groups of a file that are smaller than the size that its producer declared."""
    declared = {
        file.path: file.group_size
        for file in adapters.report(data.table).files
        if file.group_size is not None
    }
    if not declared:
        return
    files, environments = _names(data.table, "source_file"), _names(data.table, "environment")
    groups, tasks = _names(data.table, "group"), _names(data.table, "task")
    for path, size in declared.items():
        inside = files == path
        _, first, rows = np.unique(
            groups[inside].astype(str), return_index=True, return_counts=True
        )
        missing = np.maximum(size - rows, 0)
        of = environments[inside][first]
        for environment in dict.fromkeys(of.tolist()):
            short = (of == environment) & (missing > 0)
            if short.any():
                by_task: Counter[str] = Counter()
                for task, many in zip(tasks[inside][first][short], missing[short], strict=True):
                    by_task[task] += int(many)
                yield Absent(environment, "unknown", by_task.total(), [path], by_task)


def _expected_from(table: pa.Table, environments: np.ndarray, names: list[str]) -> dict[str, str]:
    files = _names(table, "source_file")
    found = dict.fromkeys(names, ROWS)
    for file in adapters.report(table).files:
        here = set(environments[files == file.path].tolist())
        if file.dispatched is not None:
            found |= dict.fromkeys(here | set(file.dispatched.absent), INPUTS)
        elif file.group_size is not None:
            found |= dict.fromkeys(here, DECLARED)
    return found


def _notes(table: pa.Table, outside: np.ndarray) -> Iterator[str]:
    for file in adapters.report(table).files:
        meant = file.dispatched
        if meant is None:
            continue
        if meant.surplus:
            yield (
                f"{file.path}: {count(meant.surplus, 'rollout')} of it "
                f"{'is' if meant.surplus == 1 else 'are'} not among the inputs of the run, and "
                "counted as expected all the same"
            )
        if meant.unreadable:
            lines = count(meant.unreadable, "line")
            yield f"{meant.path}: {lines} of it without a task and a rollout index"
    legacy = _flags(pc.equal(table["mask_source"], "instance_config.mask_sample"))
    if legacy.any():
        yield (
            f"{count(int(legacy.sum()), 'row')} masked by instance_config.mask_sample alone: "
            "NeMo Gym's own aggregation looks at the top only, and averages such rows in"
        )
    if outside.any():
        yield (
            f"{count(int(outside.sum()), 'trace')} of frozen agents, no rollouts of the policy: "
            "in no number of this report"
        )


def unregistered(table: pa.Table) -> Iterator[str]:
    """Failure kinds of NeMo Gym rows that nobody registered, one sentence a name."""
    from advlib.diagnostics._failure_kinds import standing

    mine = table.filter(pc.equal(table["format"], "nemo_gym"))
    tallies = pc.value_counts(mine["failure_kind"].combine_chunks()).to_pylist()
    for entry in tallies:
        name = entry["values"]
        if name is not None and standing(name) == "unknown":
            yield (
                f"failure kind '{plain(name)}' of {count(entry['counts'], 'row')} is not "
                "registered, and not of the form server:kind; it is used as it stands"
            )


def _sidecars(table: pa.Table) -> list[str]:
    files = pc.unique(table["source_file"]).to_pylist()
    return [path for path in files if plain_name(path).endswith(SIDECAR)]


def _names(table: pa.Table, column: str) -> np.ndarray:
    return np.array(table[column].to_pylist(), object)


def _flags(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(column, False).to_numpy(), bool)
