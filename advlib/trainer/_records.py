"""Metrics on disk: JSON lines that a resumed run continues byte for byte, and TensorBoard."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from advlib.trainer._options import needed

__all__ = ["JsonLines", "TensorBoard"]


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
