"""What ``advlib report`` does, between its options and what it prints."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advlib import adapters, encode_groups
from advlib.adapters._nemo_gym_details import METRIC, PERFORMANCE, REPORTED, ROLLOUT_INDEX
from advlib.cli import _account, _causes, _output
from advlib.cli._notes import unused
from advlib.cli._policy import settings as policy_settings
from advlib.cli._read import read
from advlib.cli._samples import LIMIT, Samples, samples
from advlib.cli._score import score
from advlib.cli._show import count
from advlib.diagnostics import (
    FailurePolicy,
    aggregate,
    mask_effect,
    pass_at_k,
    performance_summary,
)
from advlib.diagnostics._progress import TOKENS

# Of NeMo Gym: the rule is chosen task by task.
LARGEST = "largest of the first k, where a task has other rewards than 0 and 1"
LARGEST_K = 256  # of pass@k; powers of two below it are shown
MOST_REPEATS = 256  # rollouts a task; beyond them an index says nothing
MOST_VALUES = 64  # policies or steps that are broken down one by one


class Request(NamedTuple):
    """The options of ``advlib report``."""

    paths: tuple[str, ...]
    format: str
    reward: str
    group_by: tuple[str, ...]
    policy: FailurePolicy
    output: str | None
    html: str | None
    tasks: bool  # whether the numbers of every task are wanted


class View(NamedTuple):
    """The rollouts, looked at once for every section.

    Attributes:
        data: rollouts, groups and rewards.
        account: what became of them.
        causes: columns that say what failed.
        environments: (B,) names.
        task_ids: (B,) int, one an environment and task.
        places: (B,) int, the rollout's index among those of its task.
        columns: other numbers, by name; NaN for those that are too large for statistics.
        too_large: how many those are, by name.
    """

    data: Samples
    account: _account.Account
    causes: _causes.Columns
    environments: np.ndarray
    task_ids: np.ndarray
    places: np.ndarray
    columns: dict[str, np.ndarray]
    too_large: dict[str, int]


def run(request: Request) -> dict[str, Any]:
    """The report on rollout files as one JSON document.

    Raises:
        Refusal, FormatError, OSError: something cannot be used as asked.
    """
    for path, flag, suffix in (
        (request.output, "--output", ".json"),
        (request.html, "--html", ".html"),
    ):
        if path is not None:
            _output.check(path, request.paths, suffixes=(suffix,), flag=flag)
    key = None if request.reward == "reward" else request.reward
    table, told = read(request.paths, request.format, reward_key=key, details=True)
    data = samples(table, group_by=request.group_by, reward=request.reward, policy=request.policy)
    files = [file.path for file in adapters.report(table).files]
    for path, flag in ((request.output, "--output"), (request.html, "--html")):
        if path is not None:
            _output.check_not_input(path, files, flag=flag)
    view = _view(data)
    sections = {
        name: _section(view, view.environments == name, name, tasks=request.tasks)
        for name in view.account.coverage.environments
    }
    account = adapters.report(table)
    return {
        **_settings(request),
        "files": files,
        "read": {
            "records": account.records,
            "rows": account.rows,
            "reported": account.reported,
            "notes": account.notes,
        },
        "total": _total(view, list(sections.values())),
        "environments": sections,
        "policies": _by_value(view, "policy"),
        "steps": _by_value(view, "step"),
        "warnings": [
            *told,
            *view.account.notes,
            *(
                f"{name.partition(':')[2]}: {count(many, 'number')} beyond {LIMIT:g} left out"
                for name, many in view.too_large.items()
            ),
            *unused(data),
            *_account.unregistered(table),
            *([] if data.valid.any() else ["no rollout has a usable reward"]),
        ],
    }


def _settings(request: Request) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "advlib": version("advlib"),
        "reward": request.reward,
        "group_by": list(request.group_by),
        "on_failure": policy_settings(request.policy),
    }


def _view(data: Samples) -> View:
    table = data.table
    environments = np.array(table["environment"].to_pylist(), object)
    tasks = table["task"].to_pylist()
    task_ids = encode_groups(list(zip(environments.tolist(), tasks, strict=True))).ids
    columns = {
        name: np.asarray(table[name].cast("float64").to_numpy(), np.float64)
        for name in table.column_names
        if name.startswith((METRIC, PERFORMANCE))
    }
    beyond = {name: np.abs(column) > LIMIT for name, column in columns.items()}
    columns = {name: np.where(beyond[name], np.nan, columns[name]) for name in columns}
    too_large = {name: int(flags.sum()) for name, flags in beyond.items() if flags.any()}
    account = _account.account(data)
    causes = _causes.Columns(data)
    places = _places(data, np.asarray(task_ids), account.became)
    return View(
        data, account, causes, environments, np.asarray(task_ids), places, columns, too_large
    )


def _places(data: Samples, task_ids: np.ndarray, became: np.ndarray) -> np.ndarray:
    """The file's own index where it has one and it is used once a task, else the order of rows."""
    table = data.table
    if ROLLOUT_INDEX in table.column_names:
        indices = np.asarray(table[ROLLOUT_INDEX].cast("float64").to_numpy(), np.float64)
        pairs = np.stack([task_ids[became != "outside"], indices[became != "outside"]])
        if not np.isnan(pairs).any() and len(np.unique(pairs, axis=1).T) == pairs.shape[1]:
            return np.nan_to_num(indices).astype(np.int64)
    order = np.argsort(task_ids, kind="stable")
    first = np.searchsorted(task_ids[order], task_ids[order], side="left")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - first
    return places


def _total(view: View, sections: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of all; a task is of one environment, and stands there."""
    if len(sections) != 1:
        return _section(view, np.ones(len(view.environments), bool), None)
    [alone] = sections
    published = {name: part for name, part in alone["aggregate"].items() if name != "groups"}
    return {**alone, "aggregate": published}


def _section(
    view: View, rows: np.ndarray, environment: str | None, *, tasks: bool = False
) -> dict[str, Any]:
    """What is said of one environment, or of all."""
    data, account = view.data, view.account
    covered = (
        account.coverage if environment is None else account.coverage.environments[environment]
    )
    absent = [a for a in account.absent if environment in (None, a.environment)]
    sources = (
        sorted(set(account.expected_from.values()))
        if environment is None
        else [account.expected_from[environment]]
    )
    inside = rows & (account.became != "outside")
    used = inside & data.valid
    ran = inside & np.isin(account.became, ("measured", "masked"))
    return {
        "account": {
            **{name: getattr(covered, name) for name in covered._fields[:6]},
            "expected_from": sources,
            "tasks": len(np.unique(view.task_ids[inside])),
            "measured_tasks": len(np.unique(view.task_ids[used])),
        },
        "score": score(data.rewards[used], view.task_ids[used], covered),
        "not_measured": _causes.failures(
            data, account, view.causes, inside, absent, max(1, covered.expected)
        ),
        "zeros": _causes.zeros(data, view.causes, inside),
        "pass_at_k": _pass_at_k(view, used),
        "had_masked_rows_voted": mask_effect(
            data.rewards[inside], data.group_ids[inside], data.valid[inside]
        )._asdict(),
        "aggregate": _aggregate(view, ran, inside, absent if tasks else None),
        "performance": _performance(view, inside),
    }


def _pass_at_k(view: View, used: np.ndarray) -> dict[str, Any] | None:
    rows = np.flatnonzero(used)
    order = rows[np.lexsort((view.places[rows], view.task_ids[rows]))]
    _, starts = np.unique(view.task_ids[order], return_index=True)
    parts = np.split(view.data.rewards[order], starts[1:])
    scores = [part.tolist() for part in parts if len(part)]
    most = min(max(map(len, scores), default=0), LARGEST_K)
    if most < 2:
        return None
    ks = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    found = pass_at_k(scores, ks=ks)
    binary = bool(np.isin(view.data.rewards[used], (0.0, 1.0)).all())
    return {
        "rule": "combinatorial" if binary else LARGEST,
        "values": [
            {"k": k, "value": found.pass_at[k] / 100, "tasks": found.num_tasks[k]}
            for k in ks
            if k in found.pass_at
        ],
    }


def _aggregate(
    view: View, ran: np.ndarray, inside: np.ndarray, absent: list[_account.Absent] | None
) -> dict[str, Any]:
    """The published metrics; attempts that failed are in another file and in none of them.

    Args:
        view: the rollouts.
        ran: those that ran to their end.
        inside: those that were to be made and have a row.
        absent: those that have none; None where the tasks are not wanted one by one.
    """
    rows = np.flatnonzero(ran)
    columns = {"reward": view.data.rewards[rows]}
    for name, column in view.columns.items():
        if name.startswith(METRIC) and not np.isnan(column[rows]).all():
            columns[name.removeprefix(METRIC)] = column[rows]
    names = (
        view.task_ids if absent is None else np.array(view.data.table["task"].to_pylist(), object)
    )
    others = np.flatnonzero(inside & ~ran)
    expected = list(zip(names[others].tolist(), view.places[others].tolist(), strict=True))
    lost = [task for one in absent or () for task, many in one.tasks.items() for _ in range(many)]
    # Their indices are not known: any that no row has will do.
    expected += [(task, -1 - nth) for nth, task in enumerate(lost)]
    found = aggregate(
        names[rows].tolist(),
        view.places[rows].tolist(),
        ~view.data.valid[rows],
        columns,
        expected=expected,
        groups=absent is not None,
        repeats=len(np.unique(view.places[rows])) <= MOST_REPEATS,
    )
    published = {
        "metrics": found.metrics,
        "key_metrics": found.key_metrics,
        "repeats": found.repeats,
        "num_repeats": found.num_repeats,
    }
    return published if absent is None else {**published, "groups": found.groups}


def _performance(view: View, inside: np.ndarray) -> dict[str, float] | None:
    reported = view.columns.get(REPORTED)
    if reported is None:
        return None
    rows = np.flatnonzero(inside & ~np.isnan(reported))

    def column(name: str) -> list[float | None]:
        values = view.columns.get(PERFORMANCE + name)
        if values is None:
            return [None] * len(rows)
        return [None if np.isnan(value) else value for value in values[rows].tolist()]

    return performance_summary(
        int(inside.sum()),
        column("num_turns"),
        column("total_latency_ms"),
        tokens={name: column(name) for name in TOKENS},
        token_coverage=column("token_observability_coverage"),
    )


def _by_value(view: View, column: str) -> list[dict[str, Any]]:
    """Account and score by policy or step, where there are several."""
    values = np.array(view.data.table[column].to_pylist(), object)
    inside = view.account.became != "outside"
    names = list(dict.fromkeys(values[inside].tolist()))
    if len([name for name in names if name is not None]) < 2:
        return []
    if column == "step":
        names.sort(key=lambda step: (step is None, step))
    result = []
    for name in names[:MOST_VALUES]:
        rows = inside & np.array([value == name for value in values.tolist()], bool)
        used = rows & view.data.valid
        mean = score(view.data.rewards[used], view.task_ids[used], None)
        measured = {"rollouts": int(rows.sum()), "measured": int(used.sum())}
        result.append({column: name, **measured, "score": mean})
    return result
