"""A calibration in words and rows, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from advlib.cli import _show
from advlib.cli._scoring import coverage_facts, spread
from advlib.cli._show import number


def show(document: Mapping[str, Any], written: list[str]) -> None:
    """Prints a calibration, and which files were written."""
    out = _show.console()
    if not document["not_estimated"]:
        heads = ("baseline", "T", "ratio", "95 % interval", "MSE", "ESS")
        out.print(_show.table(heads, list(ratios(document)), text=(0,)))
        out.print()
    out.print(_show.facts(facts(document)))
    if document["gate"] is not None:
        out.print()
        names = ("check", "wanted", "found", "")
        out.print(_show.table(names, list(checks(document["gate"])), text=(0, 1, 3)))
    out.print()
    out.print(Text(document["advice"], style="bold"))
    if document["gate"] is not None:
        out.print(Text(verdict(document["gate"]), style="bold"))
    told = (
        f"written to {', '.join(map(_show.plain, written))}"
        if written
        else "nothing was written (no --output, no --html)"
    )
    out.print(Text(told, style="dim"))


def ratios(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row a baseline and temperature, the mean of the others first."""
    first = next((row for k in document["kernels"] for row in k["estimates"]), None)
    if first is None:
        return
    others = document["batch_size"] - 1
    yield "mean of the others", "", _fixed(1.0), "", _fixed(first["mse_loo"], 4), _fixed(others, 1)
    for kernel in document["kernels"]:
        for row in kernel["estimates"]:
            low, high = row["interval"]
            bounds = "-" if low is None else f"{_fixed(low)} to {_fixed(high)}"
            yield (
                kernel["title"],
                f"{row['temperature']}",
                _fixed(row["ratio"]),
                bounds,
                _fixed(row["mse_kernel"], 4),
                _fixed(row["ess"], 1),
            )


def facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was looked at, and how."""
    yield from coverage_facts(document["coverage"])
    seen = document["tasks"]
    yield (
        "tasks",
        f"{seen['count']:,}; {seen['with_two_or_more']:,} with two or more measured rollouts, "
        f"{seen['with_one']:,} with one, {seen['with_none']:,} with none",
    )
    yield "rewards", spread(document["rewards"])
    first = next((row for k in document["kernels"] for row in k["estimates"]), None)
    if first is not None:
        yield "σ²", f"{number(first['sigma2'])}, variance of the reward at a fixed task"
        yield (
            "estimated",
            f"on {first['num_resamples']:,} batches of {first['batch_size']:,} of "
            f"{first['num_tasks']:,} tasks ({document['method']})",
        )
    for kernel in document["kernels"]:
        yield kernel["title"], kernel["features"]


def checks(gate: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row a check of a gate."""
    for row in gate["checks"]:
        low, high = row["min"], row["max"]
        if low is not None and low == high:
            wanted = f"exactly {number(low)}"
        else:
            bounds = (("at least", low), ("at most", high))
            wanted = ", ".join(f"{word} {number(b)}" for word, b in bounds if b is not None)
        found = "missing" if row["value"] is None else number(row["value"])
        yield row["metric"], wanted, found, "passed" if row["passed"] else "FAILED"


def verdict(gate: Mapping[str, Any]) -> str:
    """Whether a gate passed, and by which numbers."""
    by = "the ratios themselves" if gate["on"] == "point" else "the lower bounds of the ratios"
    return f"The gate {'passed' if gate['passed'] else 'FAILED'}, judged by {by}."


def _fixed(value: float | None, digits: int = 3) -> str:
    """A number whose point stands below that of its neighbours."""
    return "-" if value is None else f"{value:.{digits}f}"
