"""The account of a read: what every line became, so that nothing is lost without a word.

The unit is the record. A line holds one record, except that an episode of n traces holds n (and
an episode without traces holds one, a failed row). Blank lines hold none. Every record is either a
row of the table or is counted here under a reason, with the first lines where it happened:

    lines - blank_lines + extra_traces = rows + Σ reported
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

METADATA_KEY = b"advlib.read"
FIRST_LINES = 5

# Why a record is not a row.
MALFORMED = "malformed"
TORN = "torn_last_line"
TWO_RECORDS = "two_records_on_a_line"
NOT_AN_OBJECT = "not_an_object"
UNRECOGNISED = "unrecognised"
WRONG_TYPE = "wrong_type"
GRADE_TRACE = "grade_trace"
DUPLICATE = "duplicate_id"
SUPERSEDED = "superseded_attempt"
ANNOTATION = "annotation_joined"
ANNOTATION_UNMATCHED = "annotation_unmatched"

REASONS = {
    MALFORMED: "not JSON, or nested too deeply",
    TORN: "the file ends inside this line",
    TWO_RECORDS: "a second object starts on the same line",
    NOT_AN_OBJECT: "JSON, but not an object",
    UNRECOGNISED: "an object, but no row of this format",
    WRONG_TYPE: "a row of our own with a value of another type, or valid and invalid at once",
    GRADE_TRACE: "a grader's own transcript, no rollout of the policy",
    DUPLICATE: "the same rollout id stands again further on",
    SUPERSEDED: "a failed attempt that a later row replaces",
    ANNOTATION: "an update, merged into its trace",
    ANNOTATION_UNMATCHED: "an update whose trace is in none of the files",
}
"""Why a record is no row of the table: every key of ``FileReport.reported``, in words."""
# Expected in a healthy run: counted, not warned about.
QUIET = frozenset({GRADE_TRACE, SUPERSEDED, ANNOTATION})

# What was repaired, or decided, on records that did become rows.
BAD_UTF8 = "bad_utf8"
SURROGATE = "lone_surrogate"
NON_FINITE = "non_finite_literal"
REUSED_ID = "reused_group_id"
POSITION_IDS = "example_ids_are_positions"
INFO_VARIES = "info_varies_within_a_task"
BAD_METADATA = "unreadable_metadata"
CUT_STREAM = "compressed_stream_cut"

NOTES = {
    BAD_UTF8: "bytes that are not UTF-8 were read as U+FFFD",
    SURROGATE: "half of a surrogate pair was read as U+FFFD",
    NON_FINITE: "NaN or Infinity, which JSON does not have",
    REUSED_ID: "one group id for different tasks: kept apart by a hash",
    POSITION_IDS: "one example id for different prompts: grouped by content",
    INFO_VARIES: "`info` differs inside one example: left out of the task key",
    BAD_METADATA: "metadata.json beside the file cannot be read",
    CUT_STREAM: "the compressed stream ends early; what came before was read",
}
"""What was repaired or decided on the way: every key of ``FileReport.notes``, in words."""


class FormatError(ValueError):
    """A file that cannot be read as rollouts: names the file, the line and what was looked for."""


class ReadWarning(UserWarning):
    """Sums up, once a file, what was reported while it was read."""


class Tally(msgspec.Struct):
    """How often something happened, and the first lines where it did."""

    count: int = 0
    lines: list[int] = []

    def add(self, line: int) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < FIRST_LINES:
            self.lines.append(line)


class Dispatched(msgspec.Struct):
    """The rollouts that a run meant to make, compared with the rows that there are.

    Attributes:
        path: the file that lists them.
        rollouts: how many it lists.
        surplus: rollouts with a row that it does not list.
        unreadable: lines of it that name no rollout.
        absent: environment to the rollouts without a row in any file of the run.
        absent_of: environment and task to how many of them are of that task.
        ended: the run ended and all of its lines could be read, so that what is absent was left
            out on purpose; otherwise nothing is known of it.
    """

    path: str
    rollouts: int = 0
    surplus: int = 0
    unreadable: int = 0
    absent: dict[str, Tally] = {}
    absent_of: dict[str, dict[str, int]] = {}
    ended: bool = False


class FileReport(msgspec.Struct):
    """The account of one file.

    Attributes:
        path: the file, as it was named.
        format: the format read, or null where no line was recognised.
        bytes: size on disk.
        lines: lines, blank ones included; a last line needs no newline.
        blank_lines: lines of white space only.
        extra_traces: records beyond the first of their line.
        rows: rows of the table that came from this file.
        reported: reason (a key of `REASONS`) to the records that are no rows.
        notes: what was repaired or decided (a key of `NOTES`); these records are rows.
        group_size: rollouts per example that the producer declared, if it did.
        dispatched: what the run meant to make, where a file says so and `details` were asked for.
    """

    path: str
    format: str | None = None
    bytes: int = 0
    lines: int = 0
    blank_lines: int = 0
    extra_traces: int = 0
    rows: int = 0
    reported: dict[str, Tally] = {}
    notes: dict[str, Tally] = {}
    group_size: int | None = None
    dispatched: Dispatched | None = None

    @property
    def records(self) -> int:
        """Records read: one a line that is not blank, one a trace."""
        return self.lines - self.blank_lines + self.extra_traces

    def drop(self, reason: str, line: int) -> None:
        """Count a record that is no row."""
        self.reported.setdefault(reason, Tally()).add(line)

    def note(self, what: str, line: int) -> None:
        """Count something that was repaired or decided on the way."""
        self.notes.setdefault(what, Tally()).add(line)

    def summary(self) -> str:
        """One sentence on what a reader should know, empty if there is nothing."""
        parts = [
            f"{tally.count} x {reason} ({said[reason]}; {_where(tally)})"
            for tallies, said in ((self.reported, REASONS), (self.notes, NOTES))
            for reason, tally in tallies.items()
            if reason not in QUIET
        ]
        return f"{self.path}: {self.rows} rows read; " + "; ".join(parts) if parts else ""


class ReadReport(msgspec.Struct):
    """The account of a read: one entry a file, and what a folder held that was left alone.

    Attributes:
        files: one `FileReport` a file, in the order of reading.
        ignored: files of a folder that are known not to hold rollouts, with the reason.
    """

    files: list[FileReport] = []
    ignored: dict[str, str] = {}

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(f.rows for f in self.files)

    @property
    def records(self) -> int:
        """Records read in all files."""
        return sum(f.records for f in self.files)

    @property
    def reported(self) -> dict[str, int]:
        """Reason to number of records that are no rows, over all files."""
        return _total([f.reported for f in self.files])

    @property
    def notes(self) -> dict[str, int]:
        """What was repaired or decided to how often, over all files."""
        return _total([f.notes for f in self.files])

    def check(self) -> None:
        """Raise ValueError unless records = rows + reported, in every file."""
        for f in self.files:
            reported = sum(t.count for t in f.reported.values())
            if f.records != f.rows + reported:
                raise ValueError(
                    f"{f.path}: {f.records} records, but {f.rows} rows and {reported} reported"
                )


def report(table: pa.Table) -> ReadReport:
    """The account that `read` left in a table's schema metadata.

    Args:
        table: a table from `read`, or one that kept its schema metadata (Parquet does).

    Returns:
        The account, as it was when the table was read.

    Raises:
        ValueError: the table carries no account.
    """
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise ValueError(
            f"the table has no {METADATA_KEY.decode()!r} in its schema metadata: it was not made "
            "by advlib.adapters.read, or a later step dropped the metadata"
        )
    return msgspec.json.decode(text, type=ReadReport)


def _where(tally: Tally) -> str:
    shown = ", ".join(map(str, tally.lines))
    more = ", ..." if tally.count > len(tally.lines) else ""
    return f"line{'s' if tally.count > 1 else ''} {shown}{more}"


def _total(tallies: list[dict[str, Tally]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in tallies:
        for reason, tally in one.items():
            total[reason] = total.get(reason, 0) + tally.count
    return total
