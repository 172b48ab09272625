"""Metrics on disk: JSON lines that a resumed run continues byte for byte, and TensorBoard."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from advlib.trainer._options import needed

__all__ = ["JsonLines", "RunFiles", "TensorBoard"]


class Written(NamedTuple):
    """A file as far as it goes: its length in bytes, and their SHA-256."""

    size: int = 0
    sha256: str = hashlib.sha256().hexdigest()


class JsonLines:
    """A file of one JSON object a line, appended to."""

    def __init__(self, path: Path, after: Written) -> None:
        """Open a file, cut off what stands behind ``after``, and go on there.

        Args:
            path: the file; made where it is missing.
            after: what is kept, as :meth:`settled` told it; nothing in a new run.

        Raises:
            ValueError: the file is shorter, or begins otherwise.
        """
        size = path.stat().st_size if path.exists() else 0
        if size < after.size:
            raise ValueError(f"{path} has {size} bytes; the checkpoint was made at {after.size}")
        self._file = path.open("a+b")
        self._file.seek(0)
        self._digest = hashlib.sha256(self._file.read(after.size))
        if self._digest.hexdigest() != after.sha256:
            self._file.close()
            raise ValueError(
                f"{path} was changed: its first {after.size} bytes are not those that the "
                "checkpoint was made at"
            )
        self._file.truncate(after.size)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; NaN and infinity become null."""
        line = msgspec.json.encode(record) + b"\n"
        self._file.write(line)
        self._file.flush()
        self._digest.update(line)

    def settled(self) -> Written:
        """Wait until everything is on disk; what the file then holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return Written(self._file.tell(), self._digest.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """The numbers of the same records as event files."""

    def __init__(self, directory: Path, *, step: int = 0) -> None:
        """Write into a folder; events at or after ``step`` of an earlier run are superseded.

        Raises:
            ImportError: tensorboardX is not installed; names the extra.
        """
        board = needed("tensorboardX", "a TensorBoard log")
        self._writer = board.SummaryWriter(str(directory), purge_step=step)

    def write(self, step: int, record: Mapping[str, Any]) -> None:
        """Add every finite number of a record; lists, texts and what is missing are left out."""
        for name, value in record.items():
            if isinstance(value, int | float) and name != "step" and math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class RunFiles:
    """What the first process writes, step by step."""

    def __init__(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        step: int,
        tensorboard: bool,
        closing: ExitStack,
    ) -> None:
        """Go on in a run's folder after this step, where its files are as a checkpoint says."""
        metrics, times = (Written(*facts.get(name, ())) for name in ("metrics", "times"))
        self._metrics = JsonLines(folder / "metrics.jsonl", metrics)
        closing.callback(self._metrics.close)
        self._times = JsonLines(folder / "times.jsonl", times)
        closing.callback(self._times.close)
        self._board = None
        if tensorboard:
            self._board = TensorBoard(folder / "tensorboard", step=step)
            closing.callback(self._board.close)

    def write(self, step: int, record: dict[str, Any], seconds: dict[str, float]) -> None:
        """Add a step's record and times."""
        self._metrics.write(record)
        self._times.write({"step": step, **seconds})
        if self._board is not None:
            self._board.write(step, {**record, **{f"seconds/{k}": v for k, v in seconds.items()}})

    def settled(self) -> dict[str, Written]:
        """Wait until both files are on disk; what they hold, for a checkpoint."""
        return {"metrics": self._metrics.settled(), "times": self._times.settled()}
