"""The journal of a grading: one line a finished group, on disk before the next one counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import TracebackType
from typing import IO

import msgspec

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

    Attributes:
        entries: group to its newest entry.
        dropped: bytes of a last line that was torn when the earlier run ended.
    """

    def __init__(self, path: str) -> None:
        """Open a journal, or start one.

        Raises:
            Refusal: a line that is not the last is no entry.
            OSError: it cannot be read or written.
        """
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.dropped = 0
        self._file: IO[bytes] = open(path, "ab+", buffering=0)  # noqa: SIM115  closed in `close`
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def _recover(self) -> None:
        """Reads what is there, and cuts off a line that its writer did not finish."""
        end = 0
        for number, line in enumerate(self._lines(), 1):
            try:
                # Not msgspec's decoder: an answer may hold half of a surrogate pair.
                entry = msgspec.convert(json.loads(line), Entry)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    self.dropped = len(line)
                    break
                told = plain(str(error))
                raise Refusal(f"{self.path}:{number}: no line of a journal: {told}") from None
            self.entries[entry.group] = entry
            end += len(line)
            if not line.endswith(b"\n"):  # all but its end reached the disk
                self._write(b"\n")
                end += 1
                break
        self._file.truncate(end)

    def _lines(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            yield from file

    def add(self, entry: Entry) -> None:
        """Write one entry; it is on disk when this returns.

        Raises:
            OSError: the disk is full.
        """
        self._write(line_of(entry))
        self.entries[entry.group] = entry

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())

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


def line_of(entry: Entry) -> bytes:
    """An entry as one line of JSON, ASCII alone: no character of an answer can end it early."""
    items = msgspec.structs.asdict(entry) | {"usage": msgspec.structs.asdict(entry.usage)}
    return json.dumps(items, ensure_ascii=True, allow_nan=False).encode() + b"\n"
