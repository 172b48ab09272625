"""A line that says how far a run is."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Bar"]


class Bar:
    """A progress bar over steps, on stderr."""

    def __init__(self, steps: int, start: int, *, shown: bool) -> None:
        from rich.console import Console

        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._progress.add_task("", total=steps, completed=start, told="")

    def advance(self, record: Mapping[str, Any]) -> None:
        """One step more, with its reward, loss and masked samples."""
        reward = record["reward"]
        told = "no reward" if reward is None else f"reward {reward:.3f}"
        told += f"  loss {record['loss']:.3g}  kl {record['kl_k3']:.2g}"
        if record["masked"]:
            told += f"  masked {record['masked']}"
        self._progress.update(self._task, advance=1, told=told)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
