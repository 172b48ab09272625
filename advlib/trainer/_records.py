"""Metrics on disk: JSON lines that a resumed run continues byte for byte, and TensorBoard."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from advlib.trainer._options import needed

__all__ = ["JsonLines", "RunFiles", "TensorBoard"]


class JsonLines:
    """A file of one JSON object a line, appended to."""

    def __init__(self, path: Path, *, position: int | None = None) -> None:
        """Open a file, cut off what stands behind ``position``, and go on there.

        Args:
            path: the file; made where it is missing.
            position: bytes to keep. Default: all of them.

        Raises:
            ValueError: the file is shorter than ``position``.
        """
        size = path.stat().st_size if path.exists() else 0
        if position is not None and size < position:
            raise ValueError(f"{path} has {size} bytes; the checkpoint was made at {position}")
        self._file = path.open("ab")
        if position is not None:
            self._file.truncate(position)
        self._file.seek(0, os.SEEK_END)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; NaN and infinity become null."""
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def settled(self) -> int:
        """Wait until everything is on disk; the length of the file in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

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
        written: int,
        timed: int,
        step: int,
        tensorboard: bool,
        closing: ExitStack,
    ) -> None:
        """Go on in a run's folder, at these bytes of its two files, with this step."""
        self._metrics = JsonLines(folder / "metrics.jsonl", position=written)
        closing.callback(self._metrics.close)
        self._times = JsonLines(folder / "times.jsonl", position=timed)
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

    def settled(self) -> dict[str, int]:
        """Wait until both files are on disk; their lengths, for a checkpoint."""
        return {"metrics_bytes": self._metrics.settled(), "times_bytes": self._times.settled()}
