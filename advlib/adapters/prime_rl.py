"""prime-rl and verifiers v1: episodes of one or more traces, bare traces, and late annotations.

In the newer layout a trace is written before it is scored, so its advantage and its grading stand
in annotation files alone; they are joined on the trace id once every file has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import Record, digest, fields, objects, value
from advlib.adapters._report import (
    ANNOTATION,
    ANNOTATION_UNMATCHED,
    GRADE_TRACE,
    NOT_AN_OBJECT,
    REUSED_ID,
    FileReport,
)
from advlib.adapters._rows import Row
from advlib.adapters._trace import credit, prompt_of, response_of, reward_of, token_advantage
from advlib.adapters._values import Place, flag, label, mask_source, text_of, whole
from advlib.adapters.schema import SCHEMA
from advlib.adapters.verifiers import UNKNOWN

_UPDATES = ("prime_rl", "updates")
_GRADES = ("prime_rl", "grades")


class _Episode(NamedTuple):
    """What the traces of one episode share."""

    rollout: str | None
    environment: str
    task: str
    group: str | None
    step: int | None
    kind: str | None
    ok: bool | None
    errors: list[Record]


class _Update(NamedTuple):
    trace: str
    changes: dict[str, Any]
    branches: dict[int, Any]
    account: FileReport
    line: int


def recognises(record: Record) -> bool:
    """Whether a record is an episode, a bare trace or an annotation update."""
    return "traces" in record or "nodes" in record or _is_update(record)


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    updates: list[_Update] = session.memory.setdefault(_UPDATES, [])
    grades: set[str] = session.memory.setdefault(_GRADES, set())

    def parse(record: Record, line: int) -> Sequence[Outcome]:
        place = Place(account.path, line, session.reward_key)
        if _is_update(record):
            updates.append(_update(record, account, line))
            return (None,)
        bare = "traces" not in record
        traces = [record] if bare else objects(record["traces"])
        episode = _episode(record, traces, place)
        if not traces:
            return (_without_traces(episode, session, place),)
        outcomes: list[Outcome] = []
        for trace in traces:
            row = _row(trace, episode, place) if trace else NOT_AN_OBJECT
            if isinstance(row, Row):
                if row.kind == "grade":
                    grades.add(row.rollout_id or "")
                    row = GRADE_TRACE
                else:
                    _group(row, trace, episode, session, account, line)
                    row.episode_id = None if bare else row.episode_id
            outcomes.append(row)
        return outcomes

    return FileReader(parse)


def conclude(session: Session, table: pa.Table) -> pa.Table:
    """Join the annotation updates, in the order of reading; the newest wins."""
    merged: dict[str, dict[str, Any]] = {}
    branches: dict[str, dict[int, Any]] = {}
    for update in session.memory.get(_UPDATES, []):
        if update.trace in session.memory[_GRADES]:
            update.account.drop(GRADE_TRACE, update.line)
        elif session.rows.row_of(update.trace) is None:
            update.account.drop(ANNOTATION_UNMATCHED, update.line)
        else:
            update.account.drop(ANNOTATION, update.line)
            merged.setdefault(update.trace, {}).update(update.changes)
            branches.setdefault(update.trace, {}).update(update.branches)
    changes: dict[str, dict[int, Any]] = {}
    for trace, changed in merged.items():
        if changed.get("kind") == "grade":
            session.rows.discard(trace, GRADE_TRACE)
            continue
        if "advantage" not in changed:
            mean = token_advantage(branches[trace].values())
            if mean is not None:
                changed["advantage"] = mean
        row = session.rows.row_of(trace)
        assert row is not None
        for name, item in changed.items():
            changes.setdefault(name, {})[row] = item
    for name, items in changes.items():
        column = table.column(name).to_pylist()
        for row, item in items.items():
            column[row] = item
        at = table.schema.get_field_index(name)
        table = table.set_column(at, SCHEMA.field(name), pa.array(column, SCHEMA.field(name).type))
    return table


FORMAT = Format(
    name="prime_rl",
    looks_for="an object with `traces`, `nodes`, or `trace_id` with `info` or `branches`",
    recognises=recognises,
    open=open_file,
    conclude=conclude,
)


def _is_update(record: Record) -> bool:
    return (
        "trace_id" in record
        and "nodes" not in record
        and ("info" in record or "branches" in record)
    )


def _update(record: Record, account: FileReport, line: int) -> _Update:
    streams = {
        index: value(branch["advantages"])
        for branch in objects(record.get("branches"))
        if "advantages" in branch and (index := whole(value(branch.get("index")))) is not None
    }
    trace = label(value(record["trace_id"])) or ""
    return _Update(trace, credit(fields(record.get("info"))), streams, account, line)


def _episode(record: Record, traces: list[Record], place: Place) -> _Episode:
    env = fields(record.get("env"))
    environment = text_of(value(env.get("name")), value(env.get("id"))) or UNKNOWN
    task = fields(record.get("task")) or (fields(traces[0].get("task")) if traces else {})
    run = fields(record.get("run"))
    work = fields(run.get("work"))
    info = fields(traces[0].get("info")) if traces else {}
    return _Episode(
        rollout=label(value(record.get("id"))),
        environment=environment,
        task=_task(task, traces, place),
        group=label(value(fields(record.get("group")).get("id"))),
        step=whole(value(work.get("step"))),
        kind=text_of(value(info.get("kind")), value(work.get("type")), value(run.get("type"))),
        ok=flag(value(record.get("ok"))),
        errors=objects(record.get("errors")),
    )


def _task(task: Record, traces: list[Record], place: Place) -> str:
    """Key, else hash, else a hash of the data; `idx` counts inside one run and says nothing."""
    name = label(value(task.get("key"))) or label(value(task.get("hash")))
    if name is not None:
        return name
    data = value(task.get("data"))
    if data:
        return digest(data)
    prompt = prompt_of(traces[0], {}) if traces else None
    return digest(prompt) if prompt else f"unknown:{place.path}:{place.line}"


def _group(
    row: Row, trace: Record, episode: _Episode, session: Session, account: FileReport, line: int
) -> None:
    step = "" if episode.step is None else f"/step {episode.step}"
    row.group = f"{row.environment}/{row.task}{step}"
    if episode.group is not None:
        identity = f"{row.environment}/{row.task}"
        row.group = episode.group
        if not session.rows.claim(episode.group, identity):
            row.group = f"{episode.group}@{digest(identity)}"
            account.note(REUSED_ID, line)
    # Agents with different parts in one episode are not measured by one yardstick.
    agent = text_of(value(fields(trace.get("agent")).get("name")))
    if agent not in (None, "agent"):
        row.group += f"/{agent}"


def _row(trace: Record, episode: _Episode, place: Place) -> Row:
    info = fields(trace.get("info"))
    agent = fields(trace.get("agent"))
    errors = objects(trace.get("errors"))
    ok = flag(value(trace.get("ok")))
    failed = ok is False or (ok is None and (bool(errors) or episode.ok is False))
    error = next(iter(errors or episode.errors), {})
    reward, parts = reward_of(trace, place)
    response = response_of(trace)
    rollout = label(value(trace.get("id")))
    noted = credit(info)
    if "advantage" not in noted:
        nodes = objects(trace.get("nodes"))
        noted["advantage"] = token_advantage(value(node.get("advantages")) for node in nodes)
    kind = noted.pop("kind", None) or episode.kind
    return Row(
        environment=episode.environment,
        task=episode.task,
        group="",
        rollout_id=rollout,
        episode_id=None if episode.rollout == rollout else episode.rollout,
        prompt=prompt_of(trace, fields(fields(trace.get("task")).get("data"))),
        reward=reward.number,
        reward_components=parts,
        failure_kind=text_of(value(error.get("type"))),
        failure_reason=text_of(value(error.get("message"))),
        mask_source=mask_source(trace),
        truncated=response.truncated,
        response_length=response.length,
        policy=response.model,
        step=episode.step,
        kind=kind,
        **noted,
    ).judge(reward.reason, failed=failed, trainable=value(agent.get("trainable")) is not False)


def _without_traces(episode: _Episode, session: Session, place: Place) -> Outcome:
    """An episode in which nothing was sampled: it failed, whatever `ok` says."""
    if episode.kind == "grade":
        return GRADE_TRACE
    error = next(iter(episode.errors), {})
    row = Row(
        environment=episode.environment,
        task=episode.task,
        group="",
        rollout_id=episode.rollout,
        failure_kind=text_of(value(error.get("type"))),
        failure_reason=text_of(value(error.get("message"))),
        step=episode.step,
        kind=episode.kind,
    ).judge(None, failed=True)
    _group(row, {}, episode, session, FileReport(path=place.path), place.line)
    return row
