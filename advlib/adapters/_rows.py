"""Rows into Arrow, a batch at a time, and the few decisions that need more than one row."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from advlib.adapters._report import DUPLICATE, SUPERSEDED, FileReport, FormatError
from advlib.adapters.schema import (
    FAILED,
    MASKED,
    NOT_TRAINABLE,
    SCHEMA,
)

BATCH_ROWS = 4096
BATCH_CHARS = 64 << 20  # an Arrow string array ends at 2 GiB


class Row(msgspec.Struct, gc=False):
    """One row of the table, as a format's reader fills it in; what it leaves out is null."""

    environment: str
    task: str
    group: str
    rollout_id: str | None = None  # None: the file has none, and the place becomes the id
    episode_id: str | None = None
    prompt: str | None = None
    reward: float | None = None
    reward_components: Any = None
    valid: bool = True
    invalid_reason: str | None = None
    failure_kind: str | None = None
    failure_reason: str | None = None
    mask_source: str | None = None
    truncated: bool | None = None
    response_length: int | None = None
    policy: str | None = None
    step: int | None = None
    kind: str | None = None
    advantage: float | None = None
    tier: int | None = None
    margins: list[float] | None = None
    hack: str | None = None
    format: str = ""
    source_file: str = ""
    source_line: int = 0
    fallback: bool = False  # a failed attempt: any other row with its id stands instead
    extras: dict[str, Any] | None = None  # columns beside the schema's
    agent: str | None = None  # the agent whose name ends the group's

    def judge(
        self, reward_reason: str | None, *, failed: bool = False, trainable: bool = True
    ) -> Row:
        """Set `valid` and the first reason that applies, in the documented order."""
        if self.mask_source is not None:
            self.invalid_reason = MASKED
        elif failed:
            self.invalid_reason = FAILED
        elif reward_reason is not None:
            self.invalid_reason = reward_reason
        elif not trainable:
            self.invalid_reason = NOT_TRAINABLE
        self.valid = self.invalid_reason is None
        return self


class Collector:
    """Collects the rows of all files; keeps one row an id; builds one table."""

    def __init__(self, *, light: bool = False) -> None:
        """Start with no row; a light one keeps ids, groups and places, and no text."""
        self.light = light
        self.parts: dict[str, None] = {}  # names of parts of rewards, of a light one
        self._tables: list[pa.Table] = []
        self._rows: dict[str, int] = {}  # id to row, dropped ones counted
        self._lines = array("q")  # row to line
        self._fallback: set[int] = set()
        self._starts: list[tuple[int, FileReport]] = []
        self._dropped: set[int] = set()
        self._claims: dict[str, str] = {}
        self.open(FileReport(path=""))

    def open(self, account: FileReport) -> None:
        """Start a file."""
        self.account = account
        self._starts.append((len(self._lines), account))
        self.tasks: list[str] = []  # of this file, until it closes: a format may rename them
        self.groups: list[str] = []
        self._pending: list[Row] = []
        self._chars = 0
        self._batches: list[pa.RecordBatch] = []
        self._extras: dict[str, list[Any]] = {}

    def add(self, row: Row, line: int, nth: int = 0) -> int | None:
        """Take one row, the `nth` of its line, unless a better one with its id is here.

        Returns:
            The row's number, before dropped rows are taken out; None where it is not taken.
        """
        account = self.account
        if not row.source_file:
            row.source_file, row.source_line, row.format = account.path, line, account.format or ""
        if row.rollout_id is None:
            row.rollout_id = f"{account.path}:{line}" + (f"#{nth}" if nth else "")
        at = len(self._lines)
        known = self._rows.get(row.rollout_id)
        if known is not None:
            if row.fallback and known not in self._fallback:
                account.drop(SUPERSEDED, line)
                return None
            self._drop(known, SUPERSEDED if known in self._fallback else DUPLICATE)
        if row.fallback:
            self._fallback.add(at)
        self._rows[row.rollout_id] = at
        self._lines.append(line)
        account.rows += 1
        if self.light:
            self.parts.update((name, None) for name, _ in row.reward_components or ())
            row.prompt = row.failure_reason = row.reward_components = row.extras = None
        if row.extras or self._extras:
            self._add_extras(row.extras or {})
        self.tasks.append(row.task)
        self.groups.append(row.group)
        self._pending.append(row)
        if row.prompt is not None:
            self._chars += len(row.prompt)
        if row.failure_reason is not None:
            self._chars += len(row.failure_reason)
        if len(self._pending) >= BATCH_ROWS or self._chars >= BATCH_CHARS:
            self._flush()
        return at

    def claim(self, group: str, identity: str) -> bool:
        """Whether a group id is free for this task, or already its own."""
        return self._claims.setdefault(group, identity) == identity

    def row_of(self, rollout_id: str) -> int | None:
        """Row number of an id, before dropped rows are taken out."""
        return self._rows.get(rollout_id)

    def stands(self, row: int) -> bool:
        """Whether a row, by its number, is still part of the table."""
        return row not in self._dropped

    def discard(self, rollout_id: str, reason: str) -> None:
        """Take a row out again, and count it."""
        self._drop(self._rows.pop(rollout_id), reason)

    def close(self) -> None:
        """End a file: its rows become a table."""
        self._flush()
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        for name, column in (("task", self.tasks), ("group", self.groups)):
            at = SCHEMA.get_field_index(name)
            table = table.set_column(at, SCHEMA.field(name), pa.array(column, pa.string()))
        for name, column in self._extras.items():
            table = table.append_column(name, _infer(column))
        self._tables.append(table)

    def add_table(self, table: pa.Table) -> None:
        """Take a finished table of our own, row by row as far as ids go."""
        for line, rollout_id in enumerate(table.column("rollout_id").to_pylist(), 1):
            if (known := self._rows.get(rollout_id)) is not None:
                self._drop(known, DUPLICATE)
            self._rows[rollout_id] = len(self._lines)
            self._lines.append(line)
            self.account.rows += 1
        self._tables.append(table)

    def table(self) -> pa.Table:
        """Everything collected, in the order of reading."""
        if not self._tables:
            return SCHEMA.empty_table()
        try:
            table = pa.concat_tables(self._tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise FormatError(
                f"files with columns of one name and different types: {error}"
            ) from None
        self._tables = []
        return table

    def without_dropped(self, table: pa.Table) -> pa.Table:
        """The table less the rows that later ones replaced."""
        if not self._dropped:
            return table
        return table.filter(pa.array([i not in self._dropped for i in range(len(self._lines))]))

    def _drop(self, row: int, reason: str) -> None:
        self._dropped.add(row)
        account = self._starts[bisect_right(self._starts, row, key=itemgetter(0)) - 1][1]
        account.rows -= 1
        account.drop(reason, self._lines[row])

    def _add_extras(self, extras: dict[str, Any]) -> None:
        for name in extras:
            if name not in self._extras:
                self._extras[name] = [None] * len(self.tasks)
        for name, column in self._extras.items():
            column.append(extras.get(name))

    def _flush(self) -> None:
        rows = self._pending
        if not rows:
            return
        columns = [
            pa.array(list(map(attrgetter(field.name), rows)), field.type) for field in SCHEMA
        ]
        self._batches.append(pa.record_batch(columns, schema=SCHEMA))
        self._pending = []
        self._chars = 0


def _infer(column: list[Any]) -> pa.Array:
    try:
        return pa.array(column)
    except (pa.ArrowException, OverflowError, RecursionError):
        # Mixed types: kept as JSON text rather than lost.
        return pa.array([None if x is None else json.dumps(x, ensure_ascii=False) for x in column])
