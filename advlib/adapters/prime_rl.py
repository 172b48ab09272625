"""prime-rl and verifiers v1: episodes of one or more traces, bare traces, and late annotations.

In the newer layout a trace is written before it is scored, so its advantage and its grading stand
in annotation files alone; they are joined on the trace id once every file has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import UNSET, digest, value
from advlib.adapters._lines import Line
from advlib.adapters._report import (
    ANNOTATION,
    ANNOTATION_UNMATCHED,
    GRADE_TRACE,
    REUSED_ID,
    FileReport,
)
from advlib.adapters._rows import Row
from advlib.adapters._trace import (
    Trace,
    credit,
    objects,
    prompt_of,
    response_of,
    reward_of,
    token_advantage,
)
from advlib.adapters._values import flag, get, label, mask_source, text_of, whole
from advlib.adapters.schema import SCHEMA
from advlib.adapters.verifiers import UNKNOWN

_UPDATES = ("prime_rl", "updates")
_GRADES = ("prime_rl", "grades")


class Record(Trace, gc=False):
    """An episode, a bare trace or an annotation update: they share their line's fields."""

    traces: list[Trace] | msgspec.UnsetType = UNSET
    env: Any = UNSET
    group: Any = UNSET
    run: Any = UNSET
    trace_id: Any = UNSET
    branches: Any = UNSET


class _Episode(NamedTuple):
    """What the traces of one episode share."""

    rollout: str | None
    environment: str
    task: str
    group: str | None
    step: int | None
    kind: str | None
    ok: bool | None
    errors: list[dict[str, Any]]


class _Update(NamedTuple):
    trace: str
    changes: dict[str, Any]
    branches: dict[int, Any]
    account: FileReport
    line: int


def recognises(record: Record) -> bool:
    """Whether a record is an episode, a bare trace or an annotation update."""
    return record.traces is not UNSET or record.nodes is not UNSET or _is_update(record)


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    updates: list[_Update] = session.memory.setdefault(_UPDATES, [])
    grades: set[str] = session.memory.setdefault(_GRADES, set())

    def parse(record: Record, line: Line) -> Sequence[Outcome]:
        if _is_update(record):
            update = _update(record, account, line.number)
            updates.append(update._replace(branches={}) if session.rows.light else update)
            return (None,)
        traces: Sequence[Trace] = [record] if record.traces is UNSET else record.traces
        episode = _episode(record, traces, f"{account.path}:{line.number}")
        outcomes: list[Outcome] = []
        for trace in traces or (None,):
            row = _row(trace, episode) if trace else _without_traces(episode)
            if row.kind == "grade":
                if row.rollout_id is not None:
                    grades.add(row.rollout_id)
                outcomes.append(GRADE_TRACE)
                continue
            _name_group(row, trace, episode, session, account, line.number)
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
    decoder=msgspec.json.Decoder(Record),
    recognises=recognises,
    open=open_file,
    conclude=conclude,
)


def _is_update(record: Record) -> bool:
    return (
        record.trace_id is not UNSET
        and record.nodes is UNSET
        and record.traces is UNSET
        and (record.info is not UNSET or record.branches is not UNSET)
    )


def _update(record: Record, account: FileReport, number: int) -> _Update:
    streams = {
        index: branch["advantages"]
        for branch in objects(record.branches)
        if "advantages" in branch and (index := whole(branch.get("index"))) is not None
    }
    return _Update(label(record.trace_id) or "", credit(record.info), streams, account, number)


def _episode(record: Record, traces: Sequence[Trace], where: str) -> _Episode:
    first = traces[0] if traces else None
    environment = text_of(get(record.env, "name"), get(record.env, "id")) or UNKNOWN
    work = get(record.run, "work")
    task = record.task if isinstance(record.task, dict) or first is None else first.task
    kinds = (get(first.info if first else None, "kind"), get(work, "type"), get(record.run, "type"))
    return _Episode(
        rollout=label(record.id),
        environment=environment,
        task=_task(task, first, where),
        group=label(get(record.group, "id")),
        step=whole(get(work, "step")),
        kind=text_of(*kinds),
        ok=flag(record.ok),
        errors=objects(record.errors),
    )


def _task(task: Any, first: Trace | None, where: str) -> str:
    """Key, else hash, else a hash of the data; `idx` counts inside one run and says nothing."""
    name = label(get(task, "key")) or label(get(task, "hash"))
    if name is not None:
        return name
    content = get(task, "data") or (prompt_of(first, None) if first else None)
    return digest(content) if content else f"unknown:{where}"


def _name_group(
    row: Row,
    trace: Trace | None,
    episode: _Episode,
    session: Session,
    account: FileReport,
    line: int,
) -> None:
    identity = f"{row.environment}/{row.task}"
    if episode.group is None:
        row.group = identity if episode.step is None else f"{identity}/step {episode.step}"
    elif session.rows.claim(episode.group, identity):
        row.group = episode.group
    else:
        row.group = f"{episode.group}@{digest(identity)}"
        account.note(REUSED_ID, line)
    # Agents with different parts in one episode are not measured by one yardstick.
    agent = text_of(get(trace.agent, "name")) if trace else None
    if agent not in (None, "agent"):
        row.agent = agent
        row.group += f"/{agent}"


def _row(trace: Trace, episode: _Episode) -> Row:
    errors = objects(trace.errors)
    ok = flag(trace.ok)
    failed = ok is False or (ok is None and (bool(errors) or episode.ok is False))
    error = next(iter(errors or episode.errors), {})
    (reward, reason), parts = reward_of(trace)
    response = response_of(trace)
    rollout = label(trace.id)
    noted = credit(trace.info)
    if "advantage" not in noted:
        streams = (value(node.advantages) for node in trace.nodes or ())
        noted["advantage"] = token_advantage(streams)
    kind = noted.pop("kind", None) or episode.kind
    return Row(
        environment=episode.environment,
        task=episode.task,
        group="",
        rollout_id=rollout,
        episode_id=None if episode.rollout == rollout else episode.rollout,
        prompt=prompt_of(trace, get(trace.task, "data")),
        reward=reward,
        reward_components=parts,
        failure_kind=text_of(error.get("type")),
        failure_reason=text_of(error.get("message")),
        mask_source=mask_source(trace.mask_sample),
        truncated=response.truncated,
        response_length=response.length,
        policy=response.model,
        step=episode.step,
        kind=kind,
        **noted,
    ).judge(reason, failed=failed, trainable=get(trace.agent, "trainable") is not False)


def _without_traces(episode: _Episode) -> Row:
    """An episode in which nothing was sampled: it failed, whatever `ok` says."""
    error = next(iter(episode.errors), {})
    return Row(
        environment=episode.environment,
        task=episode.task,
        group="",
        rollout_id=episode.rollout,
        failure_kind=text_of(error.get("type")),
        failure_reason=text_of(error.get("message")),
        step=episode.step,
        kind=episode.kind,
    ).judge(None, failed=True)
