"""What a rollout format is: a name, a way to tell its records, and a reader for one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from advlib.adapters._lines import Line
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
        details: whether columns beside the schema and the denominator of a run are wanted.
    """

    rows: Collector
    reward_key: str | None
    memory: dict[Any, Any]
    details: bool = False


class FileReader(NamedTuple):
    """A format at work on one file.

    Attributes:
        parse: a record in the format's shape and its line to what they become, one outcome a
            rollout.
        finish: called after the last line, while the file's rows can still be renamed.
    """

    parse: Callable[[Any, Line], Sequence[Outcome]]
    finish: Callable[[], None] = lambda: None


class Format(NamedTuple):
    """A rollout format.

    Attributes:
        name: as given to `read(format=)`.
        looks_for: one phrase for messages: what makes a record one of this format.
        decoder: reads a line into the format's shape; its `type` is a Struct or a dict.
        recognises: whether a record, in that shape, is one of this format.
        open: start reading one file.
        conclude: called once, with the table of all files, for what only then can be known.
    """

    name: str
    looks_for: str
    decoder: msgspec.json.Decoder[Any]
    recognises: Callable[[Any], bool]
    open: Callable[[Session, FileReport], FileReader]
    conclude: Callable[[Session, pa.Table], pa.Table] = lambda session, table: table
