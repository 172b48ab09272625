"""The journal of a grading: one line a finished group, on disk before the next one counts."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import IO

import msgspec

from advlib.adapters._write import naming
from advlib.cli._errors import Refusal
from advlib.cli._show import plain
from advlib.grading._group import Reason


class Usage(msgspec.Struct, frozen=True):
    """What an answer took; null where the grader did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


class Entry(msgspec.Struct, frozen=True, omit_defaults=False):
    """How the grading of one group ended.

    Attributes:
        group: the group's id.
        digest: of what the grader was given and of whom the credit goes to.
        labels: label to the id of the trace that represents the candidate.
        text: the answer as it came; empty where there is none.
        trace_id: names the grader's transcript, null without an answer.
        model: what answered.
        usage: of all requests of the answer.
        fallback_reason: stale, timeout or error; an answer that cannot be used is found again
            whenever the journal is read.
        detail: what happened, in one line.
        waiting: seconds until there was a slot.
        grading: seconds from there to the end.
    """

    group: str
    digest: str
    labels: dict[str, str]
    text: str = ""
    trace_id: str | None = None
    model: str | None = None
    usage: Usage = Usage()
    fallback_reason: Reason | None = None
    detail: str | None = None
    waiting: float = 0.0
    grading: float = 0.0


class Journal:
    """Appends entries, each flushed to disk before `add` returns; the newest of a group counts.

    Answers may be long, so that of each entry only its place is kept in memory.

    Attributes:
        path: of the file.
        dropped: bytes of a last line that was torn when the earlier run ended.
    """

    def __init__(self, path: str) -> None:
        """Open a journal, or start one.

        Raises:
            Refusal: a line is no entry, and not the torn start of one.
            OSError: it cannot be read or written.
        """
        self.path = path
        self.dropped = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] = open(path, "ab+", buffering=0)  # noqa: SIM115  closed in `close`
        try:
            self._end = self._recover()
            self._file.truncate(self._end)
            _sync(os.path.dirname(path) or ".")
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        """How many groups have an entry."""
        return len(self._places)

    def get(self, group: str) -> Entry | None:
        """The newest entry of a group, None where it has none."""
        place = self._places.get(group)
        if place is None:
            return None
        self._file.seek(place[0])
        return _entry(self._file.read(place[1]))

    def add(self, entry: Entry) -> None:
        """Write one entry; it is on disk when this returns.

        Raises:
            OSError: the disk is full.
        """
        line = line_of(entry)
        self._write(line)
        self._places[entry.group] = self._end, len(line)
        self._end += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _recover(self) -> int:
        """Finds what is there, and where it ends: a line that its writer did not finish is cut."""
        end = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    entry = _entry(line)
                except (ValueError, RecursionError) as error:
                    # The start of an entry is no JSON: what is, is something else, to its end.
                    if not (line.endswith(b"\n") or isinstance(error, msgspec.ValidationError)):
                        self.dropped = len(line)
                        return end
                    told = plain(str(error))
                    raise Refusal(f"{self.path}:{number}: no line of a journal: {told}") from None
                self._places[entry.group] = end, len(line)
                end += len(line)
                if not line.endswith(b"\n"):  # all but its end reached the disk
                    self._write(b"\n")
                    return end + 1
        return end

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        with naming(self.path):
            while rest:
                rest = rest[self._file.write(rest) :]  # at the end, wherever `get` has read
            os.fsync(self._file.fileno())


def _entry(line: bytes) -> Entry:
    # Not msgspec's decoder: an answer may hold half of a surrogate pair.
    return msgspec.convert(json.loads(line), Entry)


def _sync(folder: str) -> None:
    """Puts a folder's list of files on disk: a new file's own content is not enough."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def line_of(entry: Entry) -> bytes:
    """An entry as one line of JSON, ASCII alone: no character of an answer can end it early."""
    items = msgspec.structs.asdict(entry) | {"usage": msgspec.structs.asdict(entry.usage)}
    return json.dumps(items, ensure_ascii=True, allow_nan=False).encode() + b"\n"
