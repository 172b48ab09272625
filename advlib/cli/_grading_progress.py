"""A bar with live counts for whoever waits for graders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from advlib.cli._grading_pass import Pass
from advlib.cli._show import console, number


@contextmanager
def bar(total: int) -> Iterator[Callable[[Pass], None]]:
    """Show a bar on a terminal, else nothing.

    Args:
        total: groups in all.

    Yields:
        What a pass calls after each group.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda run: None
        return
    from rich import progress

    with progress.Progress(
        progress.TextColumn("grading"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.description}"),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    ) as shown:
        task = shown.add_task("", total=total)

        def advance(run: Pass) -> None:
            shown.update(task, completed=run.done, description=told(run))

        yield advance


def told(run: Pass) -> str:
    """The counts of a pass in a few words."""
    parts = [f"{times:,} {how}" for how, times in run.counts.items()]
    if run.tokens:
        parts.append(f"{run.tokens:,} tokens")
    if run.cost is not None:
        parts.append(f"cost {number(run.cost)}")
    return ", ".join(parts)
