"""Reading: each file's format is told by its records, and every line is accounted for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import IO, Any, Protocol

import msgspec
import pyarrow as pa

from advlib.adapters import graded, nemo_gym, own, prime_rl, verifiers
from advlib.adapters._files import Found, PathLike, companions, find
from advlib.adapters._format import FileReader, Format, Session
from advlib.adapters._interrupt import collector_paused
from advlib.adapters._json import repair, shaped
from advlib.adapters._lines import Line, read_lines
from advlib.adapters._report import (
    MALFORMED,
    METADATA_KEY,
    UNRECOGNISED,
    FileReport,
    FormatError,
    ReadReport,
    ReadWarning,
)
from advlib.adapters._rows import Collector, Row

# The most telling first: a row of ours also carries fields that other formats look for.
FORMATS = (own.FORMAT, prime_rl.FORMAT, nemo_gym.FORMAT, verifiers.FORMAT, graded.FORMAT)

Progress = Callable[[int, int, str], None]


class Listener(Protocol):
    """Follows a read along the rows that it takes."""

    def spool(self, account: FileReport) -> IO[bytes] | None:
        """Before a file is read: where its bytes go if it is compressed."""
        ...

    def take(self, at: int, row: Row, line: Line, nth: int, account: FileReport) -> None:
        """A row was taken: number `at`, from the `nth` record of its line."""
        ...


def read(
    path_or_paths: PathLike | Iterable[PathLike],
    format: str = "auto",
    *,
    progress: Progress | None = None,
    reward_key: str | None = None,
    join: bool = True,
    details: bool = False,
) -> pa.Table:
    """Read rollout files into one table, one row a rollout.

    Args:
        path_or_paths: files, folders (every `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` below) or
            patterns. Compression is told by the content.
        format: one of "verifiers", "prime_rl", "nemo_gym", "graded_solutions", "advlib"; "auto"
            tells each file's format by its first recognisable record.
        progress: called with (bytes done, bytes in all, path) about once a megabyte.
        reward_key: which part is the reward, where a reward is an object.
        join: also read what belongs to a file and stands beside it: NeMo Gym's `X_failures.jsonl`,
            prime-rl's `annotations/*.jsonl`.
        details: also keep what a report on a NeMo Gym run asks for, as columns beside the
            schema's: `rollout_index`, other numbers of a row (`metric:NAME`, `perf:NAME`). With
            `join`, the account then says which rollouts the run meant to make.

    Returns:
        A table with the columns of `advlib.adapters.schema.SCHEMA`, and any other that a file of
        our own holds. `report` gives the account of every line.

    Raises:
        FormatError: a file named by the caller holds no rollouts of a known format, or not of the
            one that was asked for; no file holds any row; a reward is an object and `reward_key`
            is missing; a row has nothing to be grouped by.
        OSError: a file cannot be read.

    Warns:
        ReadWarning: once a file in which some record could not be read as it stands.
    """
    wanted = formats_named(format)
    found = find(path_or_paths)
    session = Session(Collector(), reward_key, {}, details)
    account = ReadReport(ignored=found.ignored)
    with collector_paused():
        read_files(found, wanted, session, account, progress, join=join)
        table = session.rows.table()
        for each in FORMATS:
            table = each.conclude(session, table)
        if join:
            nemo_gym.compare_with_inputs(session)
        table = session.rows.without_dropped(table)
    account.check()
    if table.num_rows == 0:
        raise FormatError(nothing_read(account))
    for one in account.files:
        if text := one.summary():
            warnings.warn(text, ReadWarning, stacklevel=2)
    metadata = {**(table.schema.metadata or {}), METADATA_KEY: msgspec.json.encode(account)}
    return table.replace_schema_metadata(metadata)


def sniff(path: PathLike) -> str:
    """Name the format of a file by its first recognisable record.

    Args:
        path: one file.

    Returns:
        "verifiers", "prime_rl", "nemo_gym", "graded_solutions" or "advlib".

    Raises:
        FormatError: no line is a rollout of a known format.
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    account = FileReport(path=name)
    if own.is_parquet(name):
        own.read_parquet(name, account)
        return own.FORMAT.name
    for line in read_lines(name, account):
        format = _recognise(line, FORMATS, account)
        if format is not None:
            return format.name
    raise FormatError(_unknown(account, FORMATS))


def formats_named(name: str) -> tuple[Format, ...]:
    if name == "auto":
        return FORMATS
    wanted = tuple(each for each in FORMATS if each.name == name)
    if not wanted:
        names = ", ".join(repr(each.name) for each in FORMATS)
        raise FormatError(f"format={name!r}: the formats are 'auto', {names}")
    return wanted


def read_files(
    found: Found,
    wanted: tuple[Format, ...],
    session: Session,
    account: ReadReport,
    progress: Progress | None,
    *,
    join: bool,
    listener: Listener | None = None,
) -> None:
    paths = list(found.files)
    seen = {os.path.realpath(path) for path in paths}
    done = 0
    for path in paths:  # which grows by what belongs to a file
        one = FileReport(path=path)
        account.files.append(one)
        total = done + sum(os.path.getsize(rest) for rest in paths[len(account.files) - 1 :])

        def step(size: int, path: str = path, before: int = done, total: int = total) -> None:
            if progress is not None:
                progress(min(before + size, total), total, path)

        _read_file(one, wanted, session, step, listener)
        done += one.bytes
        # A folder may hold other files too; what was named, or whose format was, may not.
        if one.format is None and (path in found.named or len(wanted) == 1):
            raise FormatError(_unknown(one, wanted))
        for companion in companions(path, one.format or "") if join else ():
            if (real := os.path.realpath(companion)) not in seen and found.takes(companion):
                seen.add(real)
                paths.append(companion)


def _read_file(
    account: FileReport,
    wanted: tuple[Format, ...],
    session: Session,
    progress: Callable[[int], None],
    listener: Listener | None,
) -> None:
    rows = session.rows
    rows.open(account)
    if own.is_parquet(account.path):
        account.bytes = os.path.getsize(account.path)
        if own.FORMAT not in wanted:
            raise FormatError(f"{account.path}: Parquet is read as format 'advlib' alone")
        rows.add_table(own.read_parquet(account.path, account))
        progress(account.bytes)
        return
    format: Format | None = None
    reader: FileReader | None = None
    spool = None if listener is None else listener.spool(account)
    for line in read_lines(account.path, account, progress, spool):
        if format is None or reader is None:
            format = _recognise(line, wanted, account)
            if format is None:
                continue
            account.format = format.name
            reader = format.open(session, account)
        record = take_record(line, format, account)
        if record is None:
            continue
        try:
            outcomes = reader.parse(record, line)
        except RecursionError:  # decoded just so, and too deep for anything else
            account.drop(MALFORMED, line.number)
            continue
        account.extra_traces += len(outcomes) - 1
        for nth, outcome in enumerate(outcomes):
            if isinstance(outcome, Row):
                at = rows.add(outcome, line.number, nth)
                if listener is not None and at is not None:
                    listener.take(at, outcome, line, nth, account)
            elif outcome is not None:
                account.drop(outcome, line.number)
    if reader is not None:
        reader.finish()
    rows.close()


def _recognise(line: Line, wanted: tuple[Format, ...], account: FileReport) -> Format | None:
    """The first format that knows the record; the line is accounted for if none does."""
    scratch = account
    for format in (*wanted, *(each for each in FORMATS if each not in wanted)):
        scratch = FileReport(path=account.path)
        if take_record(line, format, scratch) is None:
            continue
        if format not in wanted:
            raise FormatError(
                f"{account.path}:{line.number}: looked for {_looked_for(wanted)}; "
                f"this is a record of format {format.name!r}"
            )
        return format
    for reason in scratch.reported:
        account.drop(reason, line.number)
    return None


def take_record(line: Line, format: Format, account: FileReport) -> Any:
    """A line in a format's shape; None, and accounted for, where it is no record of it."""
    try:
        record = format.decoder.decode(line.data)
    except (msgspec.MsgspecError, RecursionError):
        line.repaired, reason, notes = repair(line)
        if line.repaired is None:
            account.drop(reason, line.number)
            return None
        for note in notes:
            account.note(note, line.number)
        shape: Any = format.decoder.type
        record = line.repaired if shape == dict[str, Any] else shaped(shape, line.repaired)
    if not format.recognises(record):
        account.drop(UNRECOGNISED, line.number)
        return None
    return record


def _unknown(account: FileReport, wanted: tuple[Format, ...]) -> str:
    if account.lines == account.blank_lines:
        return f"{account.path}: no rollouts: the file is empty"
    first = min(line for tally in account.reported.values() for line in tally.lines)
    reasons = ", ".join(f"{t.count} x {reason}" for reason, t in account.reported.items())
    return (
        f"{account.path}:{first}: no rollouts: looked for {_looked_for(wanted)}; "
        f"all {account.records} lines are {reasons}"
    )


def _looked_for(formats: tuple[Format, ...]) -> str:
    if len(formats) > 1:
        return "records of the formats " + ", ".join(each.name for each in formats)
    return f"{formats[0].looks_for} ({formats[0].name})"


def nothing_read(account: ReadReport) -> str:
    paths = ", ".join(one.path for one in account.files[:3])
    more = ", ..." if len(account.files) > 3 else ""
    reported = ", ".join(f"{count} x {reason}" for reason, count in account.reported.items())
    return f"{paths}{more}: no rollouts; {account.records} records read: {reported or 'none'}"
