"""What ``advlib score`` does, between its options and what it prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from advlib import adapters
from advlib.cli import _estimators, _output, _show, _summary
from advlib.cli._errors import Refusal, one_of
from advlib.cli._kernels import TEXT
from advlib.cli._notes import notes
from advlib.cli._policy import settings as policy_settings
from advlib.cli._read import read
from advlib.cli._samples import Samples, samples
from advlib.diagnostics import FailurePolicy

ROWS_SHOWN = 20


class Request(NamedTuple):
    """The options of ``advlib score``; `options` holds those of the estimator that were given."""

    paths: tuple[str, ...]
    estimator: str
    options: Mapping[str, Any]
    output: str | None
    format: str
    reward: str
    group_by: tuple[str, ...]
    group_size: int | None
    policy: FailurePolicy


class Result(NamedTuple):
    """What came out: the scored rollouts, the summary as a JSON document, the warnings."""

    scored: _summary.Scored
    summary: dict[str, Any]
    warnings: list[str]


def run(request: Request) -> Result:
    """Reads, scores, and writes where an output is named.

    Raises:
        Refusal, FormatError, OSError: something cannot be used as asked.
    """
    _check_options(request)
    if request.estimator == "gs1":  # what was taken is recorded, asked for or not
        request = request._replace(options={**_estimators.KERNEL, **request.options})
    if request.output is not None:
        _output.check(request.output, request.paths)
    # A reward that is an object of several scores is read by the name of one.
    key = None if request.reward == "reward" else request.reward
    table, told = read(request.paths, request.format, reward_key=key)
    data = samples(
        table,
        group_by=request.group_by,
        reward=request.reward,
        policy=request.policy,
    )
    scored = _score(data, request)
    settings = _settings(request)
    if request.output is not None:
        sources = set(table["source_file"].to_pylist())
        _output.check_not_input(request.output, sources.union(_files(table)))
        adapters.write(_output.scored_table(scored, settings), request.output)
    warnings = told + notes(
        data,
        estimator=request.estimator,
        fallback=request.options.get("fallback", "zero"),
        group_by=request.group_by,
        group_size=request.group_size,
    )
    return Result(scored, _document(scored, settings, warnings, request.output), warnings)


def _check_options(request: Request) -> None:
    name = one_of(request.estimator, _estimators.ESTIMATORS, "the estimator")
    estimator = _estimators.ESTIMATORS[name]
    for option, value in request.options.items():
        flag = "--" + option.replace("_", "-")
        if option not in estimator.options:
            takers = [k for k, row in _estimators.ESTIMATORS.items() if option in row.options]
            raise Refusal(f"{flag} is an option of {', '.join(takers)}; {name} does not take it")
        if option == "fallback":
            one_of(value, estimator.fallbacks, f"{flag} of {name}")
        if option == "kernel":
            one_of(value, TEXT, f"{flag} of {name}")
    if request.options.get("kernel") == "length" and "fit" in request.options:
        raise Refusal("--fit is for the kernels tfidf and words; length has nothing to fit")
    if name == "leave_one_out" and not request.options.get("normalize"):
        for option in ("ddof", "eps"):
            if option in request.options:
                raise Refusal(f"--{option} is of the standard deviation: add --normalize")


def _score(data: Samples, request: Request) -> _summary.Scored:
    import warnings

    import advlib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", advlib.AdvantageWarning)  # `notes` says it, with a way out
        advantages = _estimators.advantages(request.estimator, data, request.options)
        baselines = _estimators.baselines(request.estimator, data, request.options, advantages)
    return _summary.Scored(data, request.estimator, request.options, advantages, baselines)


def _settings(request: Request) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "advlib": version("advlib"),
        "estimator": request.estimator,
        # JSON has no infinity, which is a temperature.
        "options": {k: str(v) if v == math.inf else v for k, v in request.options.items()},
        "reward": request.reward,
        "group_by": list(request.group_by),
        "on_failure": policy_settings(request.policy),
    }


def _document(
    scored: _summary.Scored, settings: dict[str, Any], warnings: list[str], output: str | None
) -> dict[str, Any]:
    data = scored.data
    account = adapters.report(data.table)
    return {
        **settings,
        "files": _files(data.table),
        "read": {
            "records": account.records,
            "rows": account.rows,
            "reported": account.reported,
            "notes": account.notes,
        },
        "coverage": _summary.coverage(data),
        "groups": _summary.groups(data),
        "rewards": _summary.statistics(data.rewards[data.valid]),
        "advantages": _summary.advantage_statistics(scored),
        "output": output,
        "warnings": warnings,
    }


def _files(table: pa.Table) -> list[str]:
    return [file.path for file in adapters.report(table).files]


def show(result: Result) -> None:
    """Prints the summary; the rows too where they went into no file."""
    out = _show.console()
    output = result.summary["output"]
    if output is None:
        out.print(_rows(result.scored))
    out.print(_facts(result.summary))
    said = f"written to {_show.plain(output)}" if output else "nothing was written (no --output)"
    out.print(Text(said, style="bold"))


def _rows(scored: _summary.Scored) -> Group:
    data = scored.data
    shown = min(ROWS_SHOWN, len(data.valid))
    number = _show.number
    sources = data.table["source_file"].to_pylist()
    lines = data.table["source_line"].to_pylist()
    short = _show.short_names(sources)
    rows = [
        (
            _show.shortened(f"{short[sources[row]]}:{lines[row]}"),
            str(data.group_ids[row] + 1),
            number(float(data.rewards[row])),
            number(float(scored.advantages[row]), sign=True),
            number(float(scored.baselines[row])),
            _summary.reason_of(data, row) or "",
        )
        for row in range(shown)
    ]
    heads = ("file and line", "group", "reward", "advantage", "baseline", "reason")
    more = len(data.valid) - shown
    rest = Text(f"... and {more:,} more; --output FILE keeps them all") if more else Text("")
    return Group(_show.table(heads, rows, text=(0, 5), tight=True), rest)


def _facts(summary: Mapping[str, Any]) -> RenderableType:
    options = ", ".join(f"{k}={v}" for k, v in summary["options"].items())
    lines = [
        ("estimator", summary["estimator"] + (f" ({options})" if options else "")),
        ("files", f"{len(summary['files']):,}"),
        *_left_out(summary["read"]),
        *coverage_facts(summary["coverage"]),
        *group_facts(summary["groups"]),
        ("rewards", spread(summary["rewards"])),
        ("advantages", spread(summary["advantages"])),
    ]
    share = summary["advantages"]["exact_zero_share"]
    if share is not None:
        zero = _show.number(100 * share, digits=1)
        lines.append(("exactly zero", f"{zero} % of the valid advantages"))
    return _show.facts(lines)


def _left_out(read: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Records that are no rows, such as graders' own transcripts."""
    if read["reported"]:
        told = ", ".join(f"{n:,} {reason}" for reason, n in read["reported"].items())
        yield "no rows", f"{told} of {_show.count(read['records'], 'record')}"


def coverage_facts(seen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How many rollouts count, and why the others do not."""
    yield "rollouts", f"{seen['rollouts']:,}; {seen['valid']:,} valid"
    if seen["invalid"]:
        yield "not valid", ", ".join(f"{n:,} {reason}" for reason, n in seen["invalid"].items())
    kinds = seen["invalid_by_failure_kind"]
    if kinds:
        yield "  of a kind", ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
    if any(seen["counted_as_zero"].values()):
        told = ", ".join(f"{n:,} {kind}" for kind, n in seen["counted_as_zero"].items())
        yield "counted as 0", told


def group_facts(groups: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How many groups of which size, and how many without a signal."""
    yield "groups", f"{groups['count']:,}; {_sizes(groups['sizes'])}"
    if groups["valid_sizes"] != groups["sizes"]:
        yield "", f"valid rollouts alone: {_sizes(groups['valid_sizes'])}"
    yield (
        "no signal",
        f"{groups['constant']:,} constant, {groups['singletons']:,} with one valid rollout, "
        f"{groups['empty']:,} with none",
    )


def _sizes(histogram: Mapping[str, int]) -> str:
    return _show.some((f"{n:,} of size {size}" for size, n in histogram.items()), limit=8)


def spread(values: Mapping[str, Any]) -> str:
    """Mean, standard deviation and range in words."""
    number = _show.number
    return (
        f"mean {number(values['mean'])}, std {number(values['std'])}, "
        f"from {number(values['min'])} to {number(values['max'])}"
    )
