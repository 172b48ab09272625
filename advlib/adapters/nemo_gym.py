"""NeMo Gym rollouts: the verify response of one rollout a line, and the sidecar of failed attempts.

A row is keyed inside its run by task and rollout index. `X_failures.jsonl` belongs to `X.jsonl`:
its rows stand only where the main file has none of that key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from advlib.adapters._files import SIDECAR, plain_name
from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import Record, digest, fields, holds, objects, value
from advlib.adapters._report import REUSED_ID, FileReport
from advlib.adapters._rows import Row
from advlib.adapters._values import (
    Place,
    components,
    flag,
    label,
    mask_source,
    messages_text,
    read_reward,
    text_of,
    whole,
)
from advlib.adapters.verifiers import UNKNOWN

_MARKS = ("responses_create_params", "_ng_task_index", "_ng_rollout_index", "_ng_failure_class")
_ROLLOUT_KEY = re.compile(r"(\d+)-(\d+)")


def recognises(record: Record) -> bool:
    """Whether a record is a row of the main file, of the sidecar, or a RolloutFailure."""
    return any(mark in record for mark in _MARKS) or _is_failure(record)


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    plain = plain_name(account.path)
    sidecar = plain.endswith(SIDECAR)
    # Ids count inside one run, and the main file's name stands for the run.
    run = plain.removesuffix(SIDECAR) + ".jsonl" if sidecar else plain
    names: dict[tuple[str, str], str] = session.memory.setdefault(("nemo_gym", run), {})

    def parse(record: Record, line: int) -> Sequence[Outcome]:
        place = Place(account.path, line, session.reward_key)
        if _is_failure(record):
            return (_failure_row(record, run, place),)
        request = fields(record.get("responses_create_params"))
        environment = _environment(record)
        prompt = value(request.get("input"))
        instructions = value(request.get("instructions"))
        key = _rollout_key(record)
        source = mask_source(record)
        reward, parts = read_reward(record, place)
        response = _response(record)
        row = Row(
            environment=environment,
            task="",
            group="",
            rollout_id=None if key is None else f"{run}#{key}",
            prompt=_joined(instructions, messages_text(prompt)),
            reward=reward.number,
            reward_components=components(fields(record.get("reward_components")) or parts),
            failure_kind=text_of(
                value(record.get("failure_kind")), value(record.get("_ng_failure_class"))
            ),
            failure_reason=text_of(
                *(value(record.get(name)) for name in _REASON_FIELDS if name in record)
            ),
            mask_source=source,
            truncated=response.truncated,
            response_length=response.length,
            policy=response.model,
            fallback=sidecar or (source is not None and "failure_class" in source),
        ).judge(reward.reason)
        index = label(value(record.get("_ng_task_index")))
        content = None
        if holds(request.get("input")) or holds(request.get("metadata")):
            content = (prompt, instructions, value(request.get("metadata")))
        row.task = _task(index, content, row, names, session, account, place)
        row.group = f"{environment}/{row.task}"
        return (row,)

    return FileReader(parse)


FORMAT = Format(
    name="nemo_gym",
    looks_for="an object with `responses_create_params`, `_ng_task_index` or `_ng_failure_class`",
    recognises=recognises,
    open=open_file,
)

_REASON_FIELDS = ("failure_reason", "_ng_failure_judge_error", "_ng_failure_message")


def _task(
    index: str | None,
    content: tuple[Any, ...] | None,
    row: Row,
    names: dict[tuple[str, str], str],
    session: Session,
    account: FileReport,
    place: Place,
) -> str:
    if index is None:
        if content is not None:
            return digest(*content)
        if row.valid:
            raise place.error(
                "no task to group by: looked for `_ng_task_index`, else for "
                "`responses_create_params` with an input or metadata"
            )
        return f"unknown:{row.rollout_id or place.line}"
    known = names.get((row.environment, index))
    if known is not None or content is None:
        return known or index
    # Inside a run the index is the task; between runs only if it asks for the same thing.
    identity = digest(*content)
    name = index
    if not session.rows.claim(f"{row.environment}/{index}", identity):
        name = f"{index}@{identity}"
        account.note(REUSED_ID, place.line)
    names[row.environment, index] = name
    return name


class _Response(NamedTuple):
    model: str | None
    length: int | None
    truncated: bool | None


def _response(record: Record) -> _Response:
    response = fields(record.get("response"))
    length = whole(value(fields(response.get("usage")).get("output_tokens")))
    output = response.get("output")
    if length is None and output is not None and _mentions_tokens(output):
        tokens = (value(item.get("generation_token_ids")) for item in objects(output))
        length = sum(len(ids) for ids in tokens if isinstance(ids, list)) or None
    why = value(fields(response.get("incomplete_details")).get("reason"))
    status = value(response.get("status"))
    if why is not None or status == "incomplete":
        truncated: bool | None = why in (None, "max_output_tokens")
    elif status == "completed":
        truncated = flag(value(record.get("truncated"))) or False
    else:
        truncated = flag(value(record.get("truncated")))
    return _Response(text_of(value(response.get("model"))), length, truncated)


def _mentions_tokens(output: Any) -> bool:
    return type(output) is not msgspec.Raw or b"generation_token_ids" in bytes(memoryview(output))


def _rollout_key(record: Record) -> str | None:
    explicit = label(value(record.get("_ng_rollout_id")))
    if explicit is not None:
        return explicit
    task = label(value(record.get("_ng_task_index")))
    rollout = label(value(record.get("_ng_rollout_index")))
    return None if task is None or rollout is None else f"{task}-{rollout}"


def _environment(record: Record) -> str:
    return (
        text_of(
            value(record.get("_ng_environment_server")),
            value(fields(record.get("agent_ref")).get("name")),
            value(record.get("task_source")),
        )
        or UNKNOWN
    )


def _is_failure(record: Record) -> bool:
    return "failure" in record and "episode_id" in record and "delivery" in record


def _failure_row(record: Record, run: str, place: Place) -> Row:
    """A strict RolloutFailure record: it has no reward, and none is inferred."""
    episode = fields(record["episode_id"])
    failure = fields(record["failure"])
    key = label(value(episode.get("rollout_id")))
    match = _ROLLOUT_KEY.fullmatch(key or "")
    task = match[1] if match else f"unknown:{key or place.line}"
    return Row(
        environment=UNKNOWN,
        task=task,
        group=f"{UNKNOWN}/{task}",
        rollout_id=None if key is None else f"{run}#{key}",
        failure_kind=text_of(value(failure.get("failure_kind"))),
        failure_reason=text_of(value(failure.get("failure_reason"))),
        fallback=True,
    ).judge(None, failed=True)


def _joined(*texts: Any) -> str | None:
    return "\n\n".join(text for text in texts if isinstance(text, str) and text) or None
