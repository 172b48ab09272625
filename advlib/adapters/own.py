"""advlib's own tables, as JSON lines or Parquet: what `write` wrote, read back as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._lines import Line
from advlib.adapters._report import WRONG_TYPE, FileReport, FormatError
from advlib.adapters._rows import Row
from advlib.adapters._values import measure, number
from advlib.adapters.schema import SCHEMA

REQUIRED = tuple(field.name for field in SCHEMA if not field.nullable)
_NAMES = frozenset(SCHEMA.names)
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Checked(msgspec.Struct):
    """The types that a line of ours must have where pyarrow would not say which line is wrong."""

    rollout_id: str
    environment: str
    task: str
    group: str
    valid: bool
    format: str
    source_file: str
    source_line: _Int64
    episode_id: str | None = None
    prompt: str | None = None
    reward: float | None = None
    reward_components: dict[str, float | None] | None = None
    invalid_reason: str | None = None
    failure_kind: str | None = None
    failure_reason: str | None = None
    mask_source: str | None = None
    truncated: bool | None = None
    response_length: _Int64 | None = None
    policy: str | None = None
    step: _Int64 | None = None
    kind: str | None = None
    advantage: float | None = None
    tier: _Int32 | None = None
    margins: list[float] | None = None
    hack: str | None = None


def recognises(record: dict[str, Any]) -> bool:
    """Whether a record is a row of ours."""
    return all(name in record for name in REQUIRED)


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file of JSON lines."""

    def parse(items: dict[str, Any], line: Line) -> Sequence[Outcome]:
        try:
            row = msgspec.convert({k: v for k, v in items.items() if k in _NAMES}, _Checked)
        except (msgspec.ValidationError, OverflowError):
            return (WRONG_TYPE,)
        if row.valid != (row.invalid_reason is None):
            return (WRONG_TYPE,)
        made = Row(**msgspec.structs.asdict(row))
        if row.reward_components is not None:
            made.reward_components = [(k, number(v)) for k, v in row.reward_components.items()]
        made.advantage = number(row.advantage)
        made.reward, reason = measure(row.reward)
        if row.valid and reason is not None:  # edited by hand: a row cannot be both
            made.judge(reason)
        made.extras = {k: v for k, v in items.items() if k not in _NAMES}
        return (made,)

    return FileReader(parse)


FORMAT = Format(
    name="advlib",
    looks_for="an object with " + ", ".join(f"`{name}`" for name in REQUIRED),
    decoder=msgspec.json.Decoder(dict[str, Any]),
    recognises=recognises,
    open=open_file,
)


def is_parquet(path: str) -> bool:
    """Whether a file starts as Parquet does."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def read_parquet(path: str, account: FileReport) -> pa.Table:
    """One of our tables from Parquet, with every column of the schema and any other it has.

    Raises:
        FormatError: not a readable Parquet file, or not a table of ours.
    """
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path}: not a readable Parquet file: {error}") from error
    account.format = FORMAT.name
    account.lines = table.num_rows
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise FormatError(
            f"{path}: not a table of advlib: it has no column {', '.join(map(repr, missing))}"
        )
    columns: dict[str, Any] = {}
    for field in SCHEMA:
        if field.name not in table.column_names:
            columns[field.name] = pa.nulls(table.num_rows, field.type)
            continue
        try:
            column = table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            raise FormatError(
                f"{path}: column {field.name!r} is {table.schema.field(field.name).type}, "
                f"and cannot be read as {field.type}: {error}"
            ) from error
        if column.null_count and not field.nullable:
            raise FormatError(f"{path}: column {field.name!r} holds {column.null_count} nulls")
        columns[field.name] = column
    extras = [field for field in table.schema if field.name not in _NAMES]
    schema = pa.schema([*SCHEMA, *extras], metadata=table.schema.metadata)
    return pa.table(
        [*columns.values(), *(table.column(field.name) for field in extras)], schema=schema
    )
