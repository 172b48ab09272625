"""Episodes with their transcripts, group by group, out of files of any size.

A first pass reads every file as `read` does and remembers where each group's lines are; loading a
group then reads those lines alone.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from advlib.adapters import graded, own
from advlib.adapters._episode import episode_of
from advlib.adapters._files import PathLike, find
from advlib.adapters._format import Format, Session
from advlib.adapters._interrupt import collector_paused
from advlib.adapters._lines import Line
from advlib.adapters._read import (
    FORMATS,
    Progress,
    formats_named,
    nothing_read,
    read_files,
    take_record,
)
from advlib.adapters._report import FileReport, FormatError, ReadReport, ReadWarning
from advlib.adapters._rows import Collector, Row
from advlib.grading import Episode

_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class _Place(NamedTuple):
    """A line of a group, and which of its records count."""

    file: int
    offset: int
    length: int
    line: int
    checksum: int
    records: tuple[int, ...]


class EpisodeIndex:
    """Where the episodes of every group are. Made by :func:`index_episodes`.

    Attributes:
        groups: group keys, in the order of first appearance.
        tasks: the task of each group, as in the column `task` of `read`.
        report: the account of every line.
    """

    def __init__(
        self,
        groups: dict[str, list[int]],
        tasks: dict[str, str],
        places: _Places,
        report: ReadReport,
        reward_key: str | None,
        component: str | None,
    ) -> None:
        self.groups: list[str] = list(groups)
        self.tasks = tasks
        self.report = report
        self._rows = groups
        self._places = places
        self._reward_key = reward_key
        self._component = component

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self.groups)

    def load(self, group: str) -> list[Episode]:
        """Read the episodes of one group, in the order of the files.

        Raises:
            KeyError: there is no such group.
            FormatError: a file has changed since it was indexed.
            OSError: a file cannot be read.
        """
        session = Session(Collector(light=True), self._reward_key, {})
        readers: dict[int, Any] = {}
        episodes = []
        for place, data in self._lines(group):
            account = FileReport(path=self._places.paths[place.file])
            format = self._places.formats[place.file]
            if place.file not in readers:
                readers[place.file] = format.open(session, account)
            line = Line(place.line, memoryview(data), ended=True)
            record = take_record(line, format, account)
            assert record is not None  # it was read before, and its checksum is the same
            rows = readers[place.file].parse(record, line)
            where = f"{account.path}:{place.line}"
            episodes.append(episode_of(record, rows, place.records, group, where, self._component))
        return episodes

    def close(self) -> None:
        """Remove the temporary copies of compressed files; groups can no longer be loaded."""
        self._places.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lines(self, group: str) -> Iterator[tuple[_Place, bytes]]:
        if group not in self._rows:
            raise KeyError(group)
        file: IO[bytes] | None = None
        opened = -1
        try:
            for place in self._places.of(self._rows[group]):
                if file is None or place.file != opened:
                    if file is not None:
                        file.close()
                    file, opened = self._places.open(place.file), place.file
                file.seek(place.offset)
                data = file.read(place.length)
                if zlib.crc32(data) != place.checksum:
                    path = self._places.paths[place.file]
                    raise FormatError(f"{path}:{place.line}: changed since it was indexed")
                yield place, data
        finally:
            if file is not None:
                file.close()


def index_episodes(
    path_or_paths: PathLike | Iterable[PathLike],
    format: str = "auto",
    *,
    progress: Progress | None = None,
    reward_key: str | None = None,
    component: str | None = None,
    join: bool = True,
    leave_out: PathLike | None = None,
) -> EpisodeIndex:
    """Find the groups of rollout files, so that each can be loaded by itself.

    Files, formats, groups and the account are those of :func:`read`, except that traces of agents
    with names of their own stay in their episode's group. Of each line only its place, a checksum
    and its ids are kept. Compressed files are unpacked into temporary files, removed by `close`.

    Args:
        path_or_paths: as for :func:`read`.
        format: as for :func:`read`; "prime_rl", "verifiers" and "nemo_gym" hold transcripts.
        progress: as for :func:`read`.
        reward_key: as for :func:`read`.
        component: the named part that is the reward of every rollout, as in the column
            `reward_components`; a rollout that does not have it has no reward.
        join: as for :func:`read`.
        leave_out: a folder of which no file is read, such as the one that is written to.

    Returns:
        An index, best used as a context manager.

    Raises:
        FormatError: as :func:`read`; or a file is of a format that holds no transcripts; no reward
            has the component.
        OSError: a file cannot be read.

    Warns:
        ReadWarning: as :func:`read`.
    """
    wanted = formats_named(format)
    found = find(path_or_paths, leave_out=leave_out)
    for path in found.files:
        if own.is_parquet(path):
            raise FormatError(_no_transcripts(path, own.FORMAT))
    rows = Collector(light=True)
    session = Session(rows, reward_key, {})
    account = ReadReport(ignored=found.ignored)
    places = _Places()
    try:
        with collector_paused():
            read_files(found, wanted, session, account, progress, join=join, listener=places)
            table = rows.table()
            for each in FORMATS:
                table = each.conclude(session, table)
        account.check()
        if account.rows == 0:
            raise FormatError(nothing_read(account))
        if component is not None and component not in rows.parts:
            known = ", ".join(map(repr, rows.parts)) or "none"
            raise FormatError(f"no reward has a component {component!r}; there are: {known}")
    except BaseException:
        places.close()
        raise
    for one in account.files:
        if text := one.summary():
            warnings.warn(text, ReadWarning, stacklevel=2)
    groups: dict[str, list[int]] = {}
    tasks: dict[str, str] = {}
    names = (table.column(name).to_pylist() for name in ("group", "task"))
    for at, (named, task) in enumerate(zip(*names, strict=True)):
        if rows.stands(at):
            agent = places.agents.get(at)
            group = named.removesuffix(f"/{agent}") if agent else named
            groups.setdefault(group, []).append(at)
            tasks.setdefault(group, task)
    return EpisodeIndex(groups, tasks, places, account, reward_key, component)


class _Places:
    """Where every row came from, and temporary copies of what was compressed."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.formats: list[Format] = []
        self.agents: dict[int, str] = {}
        self._contents: list[str] = []
        self._columns = {name: array("q") for name in _Place._fields}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._spool: IO[bytes] | None = None
        self._crc = (-1, -1, 0)  # file and line that it is of: their other records need it too

    def spool(self, account: FileReport) -> IO[bytes] | None:
        """A file to unpack a compressed one into."""
        self._end_spool()
        self.paths.append(account.path)
        self._contents.append(account.path)
        with open(account.path, "rb") as file:
            if not file.read(4).startswith(_COMPRESSED):
                return None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="advlib-")
        self._contents[-1] = os.path.join(self._folder.name, str(len(self.paths)))
        self._spool = open(self._contents[-1], "wb")  # noqa: SIM115  closed with the next file
        return self._spool

    def take(self, at: int, row: Row, line: Line, nth: int, account: FileReport) -> None:
        """Remember a row's place."""
        if len(self.formats) < len(self.paths):
            format = next(each for each in FORMATS if each.name == account.format)
            if format in (own.FORMAT, graded.FORMAT):
                raise FormatError(_no_transcripts(account.path, format))
            # Files before this one may have held no row at all.
            self.formats += [format] * (len(self.paths) - len(self.formats))
        file = len(self.paths) - 1
        if self._crc[:2] != (file, line.number):
            self._crc = (file, line.number, zlib.crc32(line.data))
        place = (file, line.offset, len(line.data), line.number, self._crc[2], nth)
        for column, item in zip(self._columns.values(), place, strict=True):
            column.append(item)
        if row.agent is not None:
            self.agents[at] = row.agent

    def of(self, rows: Iterable[int]) -> Iterator[_Place]:
        """The lines of some rows, each once."""
        last: _Place | None = None
        for row in rows:
            file, offset, length, line, checksum, nth = (
                column[row] for column in self._columns.values()
            )
            if last is not None and (last.file, last.line) == (file, line):
                last = last._replace(records=(*last.records, nth))
                continue
            if last is not None:
                yield last
            last = _Place(file, offset, length, line, checksum, (nth,))
        if last is not None:
            yield last

    def open(self, file: int) -> IO[bytes]:
        """What a file holds, decompressed."""
        self._end_spool()
        return open(self._contents[file], "rb")

    def close(self) -> None:
        """Remove what was unpacked."""
        self._end_spool()
        if self._folder is not None:
            self._folder.cleanup()

    def _end_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def _no_transcripts(path: str, format: Format) -> str:
    return (
        f"{path}: format {format.name!r} holds no transcripts to grade: "
        "name the rollout files that it was made from"
    )
