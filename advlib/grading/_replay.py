"""A grader that answers from a file of recorded verdicts."""

from __future__ import annotations

import codecs
import json
import os
import warnings
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from advlib.grading._grader import Answer, GraderError
from advlib.grading._group import CandidateGroup
from advlib.grading._parse import parse_verdict
from advlib.grading._quoted import escaped, quoted, some
from advlib.grading._verdict import CandidateVerdict, InvalidVerdict, Verdict


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_NULL = msgspec.Raw(b"null")
_FORM = 'a line is {"group": "g-7", "verdict": {"candidates": [...], "ranking": [...]}}'


class _Key(msgspec.Struct, frozen=True):
    """All that the first pass reads of a line."""

    group: str | int | None = None
    group_id: str | int | None = None

    def __post_init__(self) -> None:
        if self.group is None and self.group_id is None:
            raise ValueError("no `group`")
        if None not in (self.group, self.group_id) and str(self.group) != str(self.group_id):
            raise ValueError("`group` and `group_id` differ")

    @property
    def name(self) -> str:
        return str(self.group_id if self.group is None else self.group)


class _Record(_Key, frozen=True):
    """One line; other fields are not read."""

    labels: dict[str, str] | None = None
    text: str | None = None
    verdict: msgspec.Raw = _NULL
    candidates: msgspec.Raw = _NULL
    ranking: msgspec.Raw = _NULL
    margins: msgspec.Raw = _NULL
    notes: msgspec.Raw = msgspec.Raw(b'""')
    trace_id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    fallback_reason: str | None = None
    detail: str | None = None


_RAW = ("verdict", "candidates", "ranking", "margins", "notes")
_Line = TypeVar("_Line", _Key, _Record)


class _Place(NamedTuple):
    line: int
    start: int
    length: int


class ReplayGrader:
    """Answers with verdicts that were recorded, one JSON line a group, as ``advlib grade`` writes.

    A line has ``group`` or ``group_id``, and the verdict: under ``verdict``, an object or its JSON
    as text; under ``text``; or as fields of the line itself. It may have ``labels`` (label to trace
    id), ``trace_id``, ``model``, ``usage`` (``input_tokens``, ``output_tokens``, ``cost``) and
    ``fallback_reason`` with ``detail``. Where a group stands in several lines, the last one counts.
    The file is read once for where each group stands, and then again for each answer, so that its
    size does not matter; it may grow meanwhile, which is not seen, but must not be rewritten.

    With ``labels``, the verdict is translated where the same candidates have other labels now: by
    whole labels in ``candidates`` and ``ranking``, never within words; ``notes`` stay as they are.

    Args:
        path: of the file. A last line that is cut off is left out, with a warning.

    Raises:
        ValueError: a line is no record, or the file is compressed; the message names file and line.
        OSError: the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._places: dict[str, _Place] = {}
        with open(self.path, "rb") as file:
            start = 0
            if file.read(4).startswith(_COMPRESSED):
                raise ValueError(f"{self.path}: compressed; recorded verdicts are read unpacked")
            file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        key = _decoded(line, _Key)
                    except (ValueError, RecursionError) as error:
                        self._refuse(number, line, error)
                        break
                    self._places[key.name] = _Place(number, start, len(line))
                start += len(line)

    def __repr__(self) -> str:
        return f"ReplayGrader({self.path!r}, {len(self._places)} groups)"

    @property
    def groups(self) -> list[str]:
        """Ids of the recorded groups, in the order in which they first appear."""
        return list(self._places)

    async def __call__(self, group: CandidateGroup) -> Answer:
        """Answer for one group.

        Raises:
            GraderError: the group is not in the file, was recorded without a verdict, or with
                other candidates.
        """
        record = self._record(group.id)
        place = f"{self.path}:{self._places[group.id].line}"
        usage = record.usage or _Usage()
        answer = Answer(
            text="",
            trace_id=record.trace_id or f"replay:{group.id}",
            model=record.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
        )
        text = _text(record)
        if not text and record.fallback_reason is not None:
            why = escaped(": ".join(filter(None, (record.fallback_reason, record.detail))), 200)
            raise GraderError(f"{place}: recorded without a verdict: {why}", answer=answer)
        if text is None:
            raise GraderError(f"{place}: no verdict in this line; {_FORM}", answer=answer)
        answer = answer._replace(text=text)
        labels = {candidate.label: candidate.trace for candidate in group.candidates}
        if record.labels is None or record.labels == labels:
            return answer
        if sorted(record.labels.values()) != sorted(labels.values()):
            apart = sorted(set(record.labels.values()) ^ set(labels.values()))
            raise GraderError(
                f"{place}: group {quoted(group.id)} was recorded with other candidates; `labels` "
                f"maps labels to trace ids, and in one only: {some(apart)}",
                answer=answer._replace(text=""),
            )
        now = {trace: label for label, trace in labels.items()}
        table = {label: now[trace] for label, trace in record.labels.items()}
        return answer._replace(text=_translated(answer.text, table))

    def _record(self, group: str) -> _Record:
        place = self._places.get(group)
        if place is None:
            held = some(self._places) or "none"
            raise GraderError(
                f"{self.path}: no verdict of group {quoted(group)} was recorded; its groups: {held}"
            )
        with open(self.path, "rb") as file:
            file.seek(place.start)
            line = file.read(place.length)
        try:
            record = _decoded(line, _Record)
        except (ValueError, RecursionError) as error:
            told = escaped(str(error), 120)
            raise GraderError(f"{self.path}:{place.line}: not a recorded verdict: {told}") from None
        if record.name != group:
            raise GraderError(f"{self.path}:{place.line}: the file was changed since it was opened")
        return record

    def _refuse(self, number: int, line: bytes, error: Exception) -> None:
        """Tolerates a torn last line, the mark of a run that was killed, and nothing else."""
        if line.endswith(b"\n") or _is_json(line):
            told = escaped(str(error), 120)
            raise ValueError(
                f"{self.path}:{number}: not a recorded verdict: {told}; {_FORM}"
            ) from None
        warnings.warn(f"{self.path}:{number}: the last line is cut off and left out", stacklevel=3)


def _decoded(line: bytes, kind: type[_Line]) -> _Line:
    """A line; an answer may hold half of a surrogate pair, which msgspec does not read."""
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        fields = json.loads(line)
        if isinstance(fields, dict):
            raw = {name: json.dumps(fields[name]).encode() for name in _RAW if name in fields}
            fields |= {name: msgspec.Raw(data) for name, data in raw.items()}
        return msgspec.convert(fields, kind)


def _is_json(line: bytes) -> bool:
    """Whether a line is whole: the start of an object is no JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(record: _Record) -> str | None:
    """The verdict's JSON, to the letter where the line has it as text; None where it has none."""
    if record.text is not None:
        return record.text
    verdict = bytes(record.verdict)
    if verdict.startswith(b'"'):
        return str(json.loads(verdict))
    if verdict != b"null":
        return verdict.decode()
    if bytes(record.ranking) == b"null":
        return None
    members = (f'"{name}": {bytes(getattr(record, name)).decode()}' for name in _RAW[1:])
    return "{" + ", ".join(members) + "}"


def _translated(text: str, table: Mapping[str, str]) -> str:
    """A verdict under other labels; text that is no verdict stays what it is."""
    try:
        verdict = parse_verdict(text)
    except InvalidVerdict:
        return text
    candidates = [
        CandidateVerdict(_label(entry.label, table), entry.hack, entry.evidence)
        for entry in verdict.candidates
    ]
    ranking = [[_label(label, table) for label in tier] for tier in verdict.ranking]
    translated = Verdict(candidates, ranking, verdict.margins, verdict.notes)
    return msgspec.json.encode(translated).decode()


def _label(label: str, table: Mapping[str, str]) -> str:
    # A label that nobody had then must not become that of somebody now.
    return table.get(label, f"{label} (unknown when recorded)")
