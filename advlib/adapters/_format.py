"""What a rollout format is: a name, a way to tell its records, and a reader for one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from advlib.adapters._json import Record
from advlib.adapters._report import FileReport
from advlib.adapters._rows import Collector, Row

# A row; the reason why a record is none; or None for a record that is accounted for later.
Outcome = Row | str | None


class Session(NamedTuple):
    """What the files of one read share.

    Attributes:
        rows: the rows so far, with the ids and group names that are taken.
        reward_key: which part counts where a reward is an object.
        memory: what a format keeps from file to file, by its own keys.
    """

    rows: Collector
    reward_key: str | None
    memory: dict[Any, Any]


class FileReader(NamedTuple):
    """A format at work on one file.

    Attributes:
        parse: a record and its line to what it becomes, one outcome a rollout. It may be called
            twice for a line, so it changes nothing before its last statement.
        finish: called after the last line, while the file's rows can still be renamed.
    """

    parse: Callable[[Record, int], Sequence[Outcome]]
    finish: Callable[[], None] = lambda: None


class Format(NamedTuple):
    """A rollout format.

    Attributes:
        name: as given to `read(format=)`.
        looks_for: one phrase for messages: what makes a record one of this format.
        recognises: whether a record is one of this format.
        open: start reading one file.
        conclude: called once, with the table of all files, for what only then can be known.
    """

    name: str
    looks_for: str
    recognises: Callable[[Record], bool]
    open: Callable[[Session, FileReport], FileReader]
    conclude: Callable[[Session, pa.Table], pa.Table] = lambda session, table: table
