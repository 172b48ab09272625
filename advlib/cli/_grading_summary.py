"""What a grading found, as one document and for the terminal."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from advlib import grading
from advlib.cli import _grading_record as record
from advlib.cli import _show
from advlib.cli._grading_build import Build
from advlib.cli._grading_plan import Plan
from advlib.grading import GradedGroup
from advlib.grading._privileged import censored


def document(
    asked: Mapping[str, Any], plan: Plan, built: Build, told: Sequence[str]
) -> dict[str, Any]:
    """The summary as plain JSON values.

    Args:
        asked: what ``run.json`` holds.
        plan: the groups.
        built: what came of them.
        told: what the reader had to say.
    """
    report = plan.episodes.report
    return {
        **asked,
        "read": {
            "records": report.records,
            "rows": report.rows,
            "reported": report.reported,
            "notes": report.notes,
        },
        "groups": _groups(plan, built.graded),
        "first_fallbacks": _first_fallbacks(plan, built.graded),
        "candidates": {
            "count": sum(len(group.candidates) for group in built.groups),
            "left_out": sum(len(group.left_out) for group in built.groups),
        },
        "samples": dict(built.samples.most_common()),
        "hacks": _hacks(built.graded),
        "metrics": grading.grading_metrics(built.graded, built.groups),
        "usage": _usage(built.graded),
        "files": list(record.NAMES),
        "warnings": list(told),
    }


def _groups(plan: Plan, every: Sequence[GradedGroup]) -> dict[str, Any]:
    fallbacks = Counter(one.fallback_reason for one in every if one.fallback_reason is not None)
    graded = sum(one.graded for one in every)
    return {
        "count": len(plan.episodes.groups),
        "read": len(every),
        "graded": graded,
        "fallbacks": dict(fallbacks.most_common()),
        "nothing_to_grade": len(every) - graded - fallbacks.total(),
    }


def _first_fallbacks(plan: Plan, every: Iterable[GradedGroup]) -> list[dict[str, Any]]:
    """What happened to the first groups that fell back; a verdict may quote privileged texts."""
    found = (one for one in every if one.fallback_reason is not None)
    return [
        {
            "group": one.group,
            "reason": one.fallback_reason,
            "detail": censored(one.detail or "", plan.privileged(one.group).values()),
        }
        for one in itertools.islice(found, FIRST)
    ]


def _hacks(every: Iterable[GradedGroup]) -> dict[str, int]:
    found: Counter[str] = Counter({"confirmed": 0, "suspected": 0, "failed_citations": 0})
    for one in every:
        if one.verdict is None or one.claimed is None:
            continue
        before = {told.label: told.hack for told in one.claimed.candidates}
        for told in one.verdict.candidates:
            if told.hack != "none":
                found[told.hack] += 1
            found["failed_citations"] += told.hack != before[told.label]
    return dict(found)


def _usage(every: Iterable[GradedGroup]) -> dict[str, Any]:
    """Sums over the answers that say so; null where none does."""
    answers = [one.answer for one in every if one.answer is not None]
    return {
        "answers": len(answers),
        "input_tokens": _total(answer.input_tokens for answer in answers),
        "output_tokens": _total(answer.output_tokens for answer in answers),
        "cost": _total(answer.cost for answer in answers),
    }


def _total(items: Iterable[Any]) -> Any:
    known = [item for item in items if item is not None]
    return sum(known) if known else None


FIRST = 5  # fallbacks that are told one by one
_TIMES = ("gar/latency", "gar/waiting")


def show(summary: Mapping[str, Any]) -> None:
    """Prints the summary."""
    out = _show.console()
    out.print(_show.facts(_facts(summary)))
    if summary["metrics"]:
        out.print()
        rows = [
            (name, _show.number(value))
            for name, value in summary["metrics"].items()
            if name not in _TIMES
        ]
        out.print(_show.table(("metric", "value"), rows))
    out.print()
    out.print(_show.facts([("time", _time(summary))]))
    files = ", ".join(summary["files"])
    out.print(Text(f"written to {_show.plain(summary['output'])}: {files}", style="bold"))


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    settings, groups = summary["settings"], summary["groups"]
    yield "mode", settings["mode"]
    yield "files", f"{len(summary['inputs']):,}"
    yield "records", _records(summary["read"])
    yield "groups", _of_groups(groups)
    if groups["graded_earlier"]:
        yield "", f"{groups['graded_earlier']:,} of them by an earlier run"
    for reason, times in groups["fallbacks"].items():
        yield "  fell back", f"{times:,} {reason}"
    candidates, samples = summary["candidates"], summary["samples"]
    left_out = _show.count(candidates["left_out"], "episode")
    yield "candidates", f"{candidates['count']:,}; {left_out} left out"
    yield "rollouts", f"{sum(samples.values()):,}; {samples.get('credited', 0):,} with credit"
    for reason, times in samples.items():
        if reason != "credited":
            yield "  left out", f"{times:,}: {reason}"
    hacks = summary["hacks"]
    yield (
        "hacks",
        f"{hacks['confirmed']:,} confirmed, {hacks['suspected']:,} suspected, "
        f"{hacks['failed_citations']:,} of these for citations that failed",
    )
    yield "grader", _spent(summary["usage"])


def _time(summary: Mapping[str, Any]) -> str:
    told = f"{_show.number(summary['seconds'], digits=1)} s"
    latency = summary["metrics"].get("gar/latency")
    return told if latency is None else f"{told}; {_show.number(latency, digits=1)} s a group"


def _records(read: Mapping[str, Any]) -> str:
    from advlib.adapters import REASONS

    told = f"{read['records']:,}; {read['rows']:,} rollouts"
    for reason, times in read["reported"].items():
        told += f", {times:,} {reason} ({REASONS.get(reason, reason)})"
    return told


def _of_groups(groups: Mapping[str, Any]) -> str:
    told = f"{groups['count']:,}"
    if groups["read"] != groups["count"]:
        told += f", the first {groups['read']:,} of them"
    return (
        f"{told}; {groups['graded']:,} graded, {groups['nothing_to_grade']:,} with nothing to grade"
    )


def _spent(usage: Mapping[str, Any]) -> str:
    parts = [_show.count(usage["answers"], "answer")]
    for name in ("input_tokens", "output_tokens"):
        if usage[name] is not None:
            parts.append(f"{usage[name]:,} {name.replace('_', ' ')}")
    if usage["cost"] is not None:
        parts.append(f"cost {_show.number(usage['cost'])}")
    return ", ".join(parts)
