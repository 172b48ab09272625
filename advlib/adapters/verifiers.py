"""Legacy verifiers results: one rollout a line, `results.jsonl`, with `metadata.json` beside it.

There is no rollout id and no group id on disk. A task is its example id together with a hash of
its content, so that equal ids of different tasks stay apart and the same task in several files is
one task.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import Record, digest, fields, holds, value
from advlib.adapters._report import BAD_METADATA, INFO_VARIES, POSITION_IDS, FileReport
from advlib.adapters._rows import Row
from advlib.adapters._values import (
    Place,
    components,
    flag,
    label,
    mask_source,
    messages_text,
    number,
    read_reward,
    text_of,
    whole,
)

UNKNOWN = "unknown"

# Numeric fields that are no metric. Every other number at the top level is one.
BOOKKEEPING = frozenset(
    {
        "id", "example_id", "task_id", "uid", "index", "idx", "seed", "step", "epoch", "turn",
        "version", "reward", "advantage", "answer", "task", "time", "timestamp", "date", "cost",
        "generation_ms", "scoring_ms", "total_ms", "input_tokens", "output_tokens",
        "prompt_tokens", "completion_tokens", "total_tokens", "num_tokens", "mask_sample",
    }
)  # fmt: skip


class _Key(NamedTuple):
    """What the name of a row's task is made of, until the whole file has been seen."""

    environment: str
    example: str | None
    content: str  # hash of prompt and answer; empty where the row has neither
    content_info: str  # and of `info`
    step: int | None
    line: int


def recognises(record: Record) -> bool:
    """Whether a record is a legacy rollout."""
    if "prompt" not in record and "example_id" not in record:
        return False
    return any(name in record for name in ("reward", "completion", "error", "metrics"))


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    metadata = _metadata(account)
    environment = text_of(metadata.get("env_id"))
    model = text_of(metadata.get("model"))
    account.group_size = whole(metadata.get("rollouts_per_example"))
    keys: list[_Key] = []

    def parse(record: Record, line: int) -> Sequence[Outcome]:
        place = Place(account.path, line, session.reward_key)
        reward, parts = read_reward(record, place)
        prompt = value(record.get("prompt"))
        error = value(record.get("error"))
        detail: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
        row = Row(
            environment=environment or _own_name(record) or UNKNOWN,
            task="",
            group="",
            prompt=messages_text(prompt),
            reward=reward.number,
            reward_components=components(_parts(record, parts)),
            failure_kind=text_of(detail.get("error")),
            failure_reason=text_of(detail.get("message"), detail.get("error_chain_str")),
            mask_source=mask_source(record),
            truncated=flag(value(record.get("is_truncated"))),
            response_length=whole(value(fields(record.get("token_usage")).get("output_tokens"))),
            policy=model or text_of(value(record.get("model"))),
            step=whole(value(record.get("step"))),
            advantage=number(value(record.get("advantage"))),
        ).judge(reward.reason, failed=error not in (None, False, ""))
        key = _key(record, prompt, row, place)
        keys.append(key)
        return (row,)

    def finish() -> None:
        _name_tasks(keys, session, account)

    return FileReader(parse, finish)


FORMAT = Format(
    name="verifiers",
    looks_for="an object with `prompt` or `example_id`, and `reward`, `completion` or `error`",
    recognises=recognises,
    open=open_file,
)


def _key(record: Record, prompt: Any, row: Row, place: Place) -> _Key:
    example = label(value(record.get("example_id")))
    if example is None:
        example = label(value(record.get("id")))
    content = content_info = ""
    if any(holds(record.get(name)) for name in ("prompt", "answer", "info")):
        answer, info = value(record.get("answer")), value(record.get("info"))
        content = content_info = digest(prompt, answer)
        if info:
            content_info = digest(prompt, answer, info)
    elif example is None:
        raise place.error(
            "no task to group by: looked for `example_id` or `id`, else `prompt`, `answer` or "
            "`info` with some content"
        )
    return _Key(row.environment, example, content, content_info, row.step, place.line)


def _name_tasks(keys: list[_Key], session: Session, account: FileReport) -> None:
    """Decide for each environment in the file what its example ids are worth."""
    contents: dict[tuple[str, str], set[str]] = defaultdict(set)
    infos: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key in keys:
        if key.example is not None:
            contents[key.environment, key.example].add(key.content)
            infos[key.environment, key.example].add(key.content_info)
    # One id for several prompts: it counts rows, or restarts with each environment.
    positions = {environment for (environment, _), seen in contents.items() if len(seen) > 1}
    varying = {environment for (environment, _), seen in infos.items() if len(seen) > 1}
    varying -= positions
    for note, environments in ((POSITION_IDS, positions), (INFO_VARIES, varying)):
        for environment in sorted(environments):
            account.note(note, next(k.line for k in keys if k.environment == environment))
    for at, key in enumerate(keys):
        content = key.content if key.environment in varying else key.content_info
        known = () if key.environment in positions and content else (key.example,)
        task = ":".join(part for part in (*known, content) if part)
        session.rows.tasks[at] = task
        step = "" if key.step is None else f"/step {key.step}"
        session.rows.groups[at] = f"{key.environment}/{task}{step}"


def _own_name(record: Record) -> str | None:
    name = text_of(value(record.get("task")))
    return None if name == "default" else name


def _parts(record: Record, reward_parts: Record) -> Record:
    if reward_parts:
        named = reward_parts
    elif "metrics" in record:
        named = fields(record["metrics"])
    else:
        named = record
    if named is not record:
        return {k: v for k, v in named.items() if _is_number(v) or value(v) is None}
    return {
        name: item
        for name, item in record.items()
        if name not in BOOKKEEPING and not name.endswith("_ms") and _is_number(item)
    }


def _is_number(item: Any) -> bool:
    if type(item) is msgspec.Raw:
        return bytes(memoryview(item)[:1]) in b"-0123456789"
    return isinstance(item, int | float) and not isinstance(item, bool)


def _metadata(account: FileReport) -> dict[str, Any]:
    path = os.path.join(os.path.dirname(account.path), "metadata.json")
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as file:
            metadata = msgspec.json.decode(file.read())
    except (OSError, msgspec.MsgspecError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        account.note(BAD_METADATA, 1)
        return {}
    return metadata
