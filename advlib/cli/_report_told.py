"""A report in words and rows, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from advlib.cli import _show
from advlib.cli._causes import paths, places
from advlib.cli._score import METHOD
from advlib.cli._show import count, number

STATES = ("measured", "masked", "failed", "omitted", "unknown")
NAME = 24  # characters of an environment, so that a table fits 80 columns
CAUSES_SHOWN = 12
VALUES_SHOWN = 24
ACCOUNT = ("environment", "expected", *STATES)
SCORE = ("environment", "score", "95 % interval", "tasks", "as zeros", "lost")
CAUSES = ("what", "became", "count", "share", "where")

_CAUSE = {
    "true_zero": "",
    "failure_kind": "failure kind of a valid row",
    "failure_reason": "reason in words, of a valid row",
    "counted_as_zero": "counted as zero",
}


def show(document: Mapping[str, Any], written: Sequence[str]) -> None:
    """Prints a report, and which files were written."""
    out = _show.console()
    out.print(_show.table(ACCOUNT, list(accounts(document))))
    out.print()
    out.print(_show.table(SCORE, list(scores(document)), text=(0,)))
    causes = list(not_measured(document["total"], document["files"]))
    if causes:
        out.print()
        shown = [(_show.shortened(row[0], 40), *row[1:]) for row in causes[:CAUSES_SHOWN]]
        out.print(_show.table(CAUSES, shown, text=(0, 1, 4)))
        if len(causes) > CAUSES_SHOWN:
            out.print(Text(f"... and {len(causes) - CAUSES_SHOWN:,} more; --json has them all"))
    for name in ("policies", "steps"):
        rows = list(by_value(document[name]))
        if rows:
            heads = (_HEADS[name], "rollouts", "measured", "score", "95 % interval")
            out.print()
            out.print(_show.table(heads, rows[:VALUES_SHOWN], text=(0,)))
            if len(rows) > VALUES_SHOWN:
                out.print(Text(f"... and {len(rows) - VALUES_SHOWN:,} more; --json has more"))
    out.print()
    out.print(_show.facts(facts(document)))
    out.print()
    for sentence in sentences(document):
        out.print(Text(sentence, style="bold"))
    told = (
        f"written to {', '.join(map(_show.plain, written))}"
        if written
        else "nothing was written (no --output, no --html)"
    )
    out.print(Text(told, style="dim"))


_HEADS = {"policies": "policy", "steps": "step"}


def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The environments by name, and all of them together where there are several."""
    yield from document["environments"].items()
    if len(document["environments"]) != 1:
        yield "all", document["total"]


def accounts(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row an environment: what became of its rollouts."""
    for name, section in sections(document):
        told = section["account"]
        yield _show.shortened(name, NAME), *(f"{told[s]:,}" for s in ("expected", *STATES))


def scores(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row an environment: the score, its interval, and what failures as zeros would make."""
    for name, section in sections(document):
        told = section["score"]
        yield (
            _show.shortened(name, NAME),
            number(told["mean"]),
            interval(told),
            f"{told['tasks']:,}",
            number(told["failures_as_zero"]),
            lost(told),
        )


def interval(told: Mapping[str, Any]) -> str:
    """An interval in words."""
    if told["interval"] is None:
        return "-"
    low, high = told["interval"]
    return f"{number(low)} to {number(high)}"


def lost(told: Mapping[str, Any]) -> str:
    """What failures as zeros would cost."""
    if told["lost"] is None:
        return "-"
    if told["lost_unit"] == "points":
        return f"{number(told['lost'], digits=1)} pt"
    return number(told["lost"])


def not_measured(
    section: dict[str, Any], files: Sequence[str]
) -> Iterator[tuple[str, str, str, str, str]]:
    """One row a cause of what was not measured."""
    short = _show.short_names([*files, *paths(section)])
    for told in section["not_measured"]:
        named = told["kind"]
        if told["standing"] is not None and told["reason"] not in ("masked", "failed"):
            named += f" ({told['reason']})"
        share = _percent(told["share"])
        yield named, told["became"], f"{told['count']:,}", share, places(told, short)


def zeros(section: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """One row a cause of a measured reward of 0."""
    for told in section["zeros"]:
        yield told["name"], _CAUSE[told["cause"]], f"{told['count']:,}"


def by_value(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """One row a policy or a step."""
    for row in rows:
        name = next(iter(row.values()))
        told = row["score"]
        counts = (f"{row[key]:,}" for key in ("rollouts", "measured"))
        shown = "not told" if name is None else _show.shortened(str(name), 40)
        yield shown, *counts, number(told["mean"]), interval(told)


def passes(section: Mapping[str, Any]) -> str | None:
    """Pass@k in one line; None where no task has two rollouts."""
    found = section["pass_at_k"]
    if found is None:
        return None
    binary = found["rule"] == "combinatorial"
    told = [
        f"{row['k']}: {_percent(row['value']) if binary else number(row['value'])}"
        + (
            ""
            if row["tasks"] == found["values"][0]["tasks"]
            else f" ({count(row['tasks'], 'task')})"
        )
        for row in found["values"]
    ]
    return ", ".join(told)


def pass_name(section: Mapping[str, Any]) -> str:
    """What the rule of pass@k makes of the numbers."""
    return "pass@k" if section["pass_at_k"]["rule"] == "combinatorial" else "best of k"


def effect(section: Mapping[str, Any]) -> str:
    """What masked rows would have done to the advantages of the others."""
    told = section["had_masked_rows_voted"]
    if not told["moved"]:
        return "no advantage would move"
    return (
        f"{told['moved']:,} of {count(told['num_measured'], 'advantage')} would move, by "
        f"{number(told['mean_change'])} on average and {number(told['max_change'])} at most; "
        f"{told['sign_flips']:,} would change sign"
    )


def facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Everything that has no table of its own."""
    total = document["total"]
    yield "files", _show.some(document["files"], limit=4)
    reported = document["read"]["reported"]
    if reported:
        told = ", ".join(f"{n:,} {reason}" for reason, n in reported.items())
        yield "no rows", f"{told} of {count(document['read']['records'], 'record')}"
    yield "expected", f"by {' and '.join(total['account']['expected_from'])}"
    if list(document["on_failure"].items()) != [("*", "mask")]:
        told = ", ".join(f"{kind}={action}" for kind, action in document["on_failure"].items())
        yield "on failure", told
    tasks = total["account"]
    yield "tasks", f"{tasks['tasks']:,}; {tasks['measured_tasks']:,} with a measured rollout"
    causes = [
        f"{many} {name}" + (f" ({what})" if what else "") for name, what, many in zeros(total)
    ]
    yield "rewards of 0", _show.some(causes, limit=8) if causes else "none"
    passed = passes(total)
    if passed is not None:
        yield pass_name(total), passed
    yield "as zeros", f"had rows that do not count voted as zeros: {effect(total)}"
    yield "interval", total["score"]["no_interval"] or METHOD


def sentences(document: Mapping[str, Any]) -> Iterator[str]:
    """The result in one or two sentences."""
    total = document["total"]
    told, covered = total["score"], total["account"]
    if told["mean"] is None:
        yield (
            f"Nothing was measured: none of {count(covered['expected'], 'rollout')} has a usable "
            "reward, so there is no score."
        )
        return
    bounds = "" if told["interval"] is None else f" (95 %: {interval(told)})"
    yield (
        f"The score is {number(told['mean'])}{bounds} over {covered['measured']:,} of "
        f"{count(covered['expected'], 'rollout')}."
    )
    out = covered["expected"] - covered["unknown"] - covered["measured"]
    if out:
        points = told["lost_unit"] == "points"
        gap = count_of(told["lost"]) if points else f"{number(told['lost'])} in reward"
        yield (
            f"Counting the {out:,} that were not measured as zeros would say "
            f"{number(told['failures_as_zero'])}: {gap} lost to what failed, not by the policy."
        )
    if covered["unknown"]:
        yield (
            f"Of {count(covered['unknown'], 'rollout')} nothing is known: the run is not over, or "
            "lost them."
        )


def count_of(points: float) -> str:
    """``1 point``, ``12.5 points``."""
    shown = number(points, digits=1)
    return f"{shown} point" if shown == "1" else f"{shown} points"


def _percent(share: float) -> str:
    return f"{number(100 * share, digits=1)} %"
