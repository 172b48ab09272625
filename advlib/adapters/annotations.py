"""Writing what a grading found: prime-rl's annotation updates, and a table of the same."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from advlib.adapters._interrupt import collector_paused
from advlib.adapters._write import replacing
from advlib.grading._annotations import Annotation, update_of

_ROWS, _NUMBERS = 1024, 1 << 22  # of a row group; streams may be long
_EVIDENCE = pa.list_(pa.struct([("turn", pa.int64()), ("quote", pa.string())]))


def _field(name: str, kind: pa.DataType, meaning: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"description": meaning})


ANNOTATION_SCHEMA = pa.schema(
    [
        _field("trace_id", pa.string(), "the trace, `rollout_id` of `read`", nullable=False),
        _field("episode_id", pa.string(), "its episode", nullable=False),
        _field("group", pa.string(), "its advantage group", nullable=False),
        _field("advantage", pa.float64(), "the credit of the trace", nullable=False),
        _field("graded", pa.bool_(), "a verdict decided the credit", nullable=False),
        _field("label", pa.string(), "the candidate's name before the grader; null if not asked"),
        _field("hack", pa.string(), "none, suspected or confirmed, after the citation check"),
        _field("evidence", _EVIDENCE, "what the grader quoted, and the turn, from 1"),
        _field("tier", pa.int32(), "the tier, 0 best; null where unranked"),
        _field("margins", pa.list_(pa.string()), "advantages mode: the gap below each tier"),
        _field("w", pa.float64(), "win rate; null where unranked"),
        _field("f", pa.float64(), "rewards mode: the share of credit that is kept"),
        _field("lambda", pa.float64(), "rewards mode: the group's factor"),
        _field("fallback_reason", pa.string(), "stale, timeout, error or invalid"),
        _field("grader_trace_id", pa.string(), "the grader's own trace"),
        _field(
            "token_advantages",
            pa.list_(pa.list_(pa.float64())),
            "one list a branch, one number a token; empty where the file has no tokens",
            nullable=False,
        ),
    ]
)
"""The columns of an annotation table, each with its meaning under ``description``."""


def write_annotations(annotations: Iterable[Annotation], *paths: str | os.PathLike[str]) -> int:
    """Write annotations as they come, to one file or to several at once.

    A file appears under its name only when it is complete. Numbers keep all of float64: JSON holds
    the shortest text that reads back as the same number.

    Args:
        annotations: taken one by one, so that a long run need not fit in memory.
        paths: `*.jsonl` for prime-rl's annotation updates, which `read` joins to their traces;
            `*.parquet` for a table of `ANNOTATION_SCHEMA`, one row a trace. Older files are
            replaced.

    Returns:
        The number of annotations.

    Raises:
        ValueError: a name ends in neither.
        OSError: a folder is missing, or the disk is full.
    """
    count = 0
    with contextlib.ExitStack() as stack:
        sinks = [stack.enter_context(_sink(os.fspath(path))) for path in paths]
        for annotation in annotations:
            for sink in sinks:
                sink(annotation)
            count += 1
    return count


def json_line(document: dict[str, Any]) -> bytes:
    """A document as one line of JSON, ASCII alone, so that no text of a trace can end it early."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


@contextlib.contextmanager
def _sink(path: str) -> Iterator[Callable[[Annotation], None]]:
    if path.endswith(".jsonl"):
        with replacing(path) as file:
            yield lambda annotation: _write_line(file, annotation)
    elif path.endswith(".parquet"):
        with replacing(path) as file, pq.ParquetWriter(file, ANNOTATION_SCHEMA) as writer:
            rows = _Rows(writer)
            yield rows.add
            rows.flush()
    else:
        raise ValueError(f"{path}: annotations are written as .jsonl or .parquet")


def _write_line(file: IO[bytes], annotation: Annotation) -> None:
    file.write(json_line(update_of(annotation)))


class _Rows:
    """Rows on their way into a Parquet file, a row group at a time."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._rows: list[dict[str, Any]] = []
        self._numbers = 0

    def add(self, annotation: Annotation) -> None:
        self._rows.append(_row(annotation))
        self._numbers += sum(map(len, annotation.tokens))
        if len(self._rows) >= _ROWS or self._numbers >= _NUMBERS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            with collector_paused():
                self._writer.write_table(pa.Table.from_pylist(self._rows, ANNOTATION_SCHEMA))
        self._rows, self._numbers = [], 0


def _row(annotation: Annotation) -> dict[str, Any]:
    gar = annotation.gar or {}
    row = {name: gar.get(name) for name in ANNOTATION_SCHEMA.names}
    row.update(
        trace_id=annotation.trace,
        episode_id=annotation.episode,
        group=annotation.group,
        advantage=annotation.advantage,
        graded="hack" in gar,
        token_advantages=annotation.tokens,
    )
    for name in ("label", "episode_id", "group", "trace_id"):
        row[name] = _text(row[name])
    if row["evidence"] is not None:
        row["evidence"] = [{**one, "quote": _text(one["quote"])} for one in row["evidence"]]
    return row


def _text(text: str | None) -> str | None:
    """Text that Arrow can hold: half of a surrogate pair, which JSON can write, becomes "?"."""
    return None if text is None else text.encode("utf-8", "replace").decode()
