"""Legacy verifiers results: one rollout a line, `results.jsonl`, with `metadata.json` beside it.

There is no rollout id and no group id on disk. A task is its example id together with a hash of
its content, so that equal ids of different tasks stay apart and the same task in several files is
one task.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import UNSET, digest, numbers
from advlib.adapters._lines import Line
from advlib.adapters._report import (
    BAD_METADATA,
    INFO_VARIES,
    POSITION_IDS,
    FileReport,
    FormatError,
)
from advlib.adapters._rows import Row
from advlib.adapters._values import (
    components,
    flag,
    get,
    holds,
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


class Rollout(msgspec.Struct, gc=False):
    """The fields of a line that the table has a place for."""

    example_id: Any = UNSET
    id: Any = UNSET
    task: Any = UNSET
    prompt: Any = UNSET
    answer: Any = UNSET
    info: Any = UNSET
    reward: Any = UNSET
    metrics: Any = UNSET
    error: Any = UNSET
    is_truncated: Any = UNSET
    token_usage: Any = UNSET
    model: Any = UNSET
    step: Any = UNSET
    advantage: Any = UNSET
    mask_sample: Any = UNSET
    instance_config: Any = UNSET
    completion: msgspec.Raw | msgspec.UnsetType = UNSET  # only whether it is there


_NO_ERROR = (UNSET, None, False, "")


class _Content(msgspec.Struct, frozen=True, gc=False):
    """Hashes of what a task consists of; empty where a row has none of it."""

    asked: str = ""  # of prompt and answer
    full: str = ""  # and of `info`


class _Task(msgspec.Struct, gc=False):
    """What the last row asked for, and what that comes to."""

    prompt: Any = UNSET
    answer: Any = UNSET
    info: Any = UNSET
    text: str | None = None
    content: _Content = _Content()


def recognises(rollout: Rollout) -> bool:
    """Whether a record is a legacy rollout."""
    if rollout.prompt is UNSET and rollout.example_id is UNSET:
        return False
    return (
        rollout.reward is not UNSET
        or rollout.completion is not UNSET
        or rollout.error is not UNSET
        or rollout.metrics is not UNSET
    )


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    metadata = _metadata(account)
    environment = text_of(metadata.get("env_id"))
    model = text_of(metadata.get("model"))
    account.group_size = whole(metadata.get("rollouts_per_example"))
    names = _Names()
    task = _Task()

    def parse(rollout: Rollout, line: Line) -> Sequence[Outcome]:
        nonlocal task
        (reward, reason), parts = read_reward(
            rollout.reward, session.reward_key, account.path, line
        )
        if not parts:
            parts = _flat_metrics(line) if rollout.metrics is UNSET else rollout.metrics
        # The rollouts of a task often stand together: hash it once.
        if (
            task.prompt != rollout.prompt
            or task.answer != rollout.answer
            or task.info != rollout.info
        ):
            task = _task(rollout)
        row = Row(
            environment=environment or _own_name(rollout.task) or UNKNOWN,
            task="",
            group="",
            prompt=task.text,
            reward=reward,
            reward_components=components(parts),
            mask_source=mask_source(rollout.mask_sample, rollout.instance_config),
            truncated=flag(rollout.is_truncated),
            response_length=whole(get(rollout.token_usage, "output_tokens")),
            policy=model or text_of(rollout.model),
            step=whole(rollout.step),
            advantage=number(rollout.advantage),
        )
        error = None if rollout.error in _NO_ERROR else rollout.error
        if error is not None:
            detail = error if isinstance(error, dict) else {"message": error}
            row.failure_kind = text_of(detail.get("error"))
            row.failure_reason = text_of(detail.get("message"), detail.get("error_chain_str"))
        row.judge(reason, failed=error is not None)
        example = label(rollout.example_id)
        if example is None and type(rollout.id) is int:  # a string would be one rollout's own
            example = str(rollout.id)
        if example is None and not task.content.full:
            raise FormatError(
                f"{account.path}:{line.number}: no task to group by: looked for `example_id` or "
                "`id`, else `prompt`, `answer` or `info` with some content"
            )
        names.add(row, example, task.content, line.number)
        return (row,)

    return FileReader(parse, lambda: names.settle(session, account))


FORMAT = Format(
    name="verifiers",
    looks_for="an object with `prompt` or `example_id`, and `reward`, `completion` or `error`",
    decoder=msgspec.json.Decoder(Rollout),
    recognises=recognises,
    open=open_file,
)


def _task(rollout: Rollout) -> _Task:
    prompt, answer, info = rollout.prompt, rollout.answer, rollout.info
    content = _Content()
    if holds(prompt) or holds(answer) or holds(info):
        known = [None if part is UNSET else part for part in (prompt, answer)]
        asked = digest(*known)
        content = _Content(asked, digest(*known, info) if holds(info) else asked)
    return _Task(prompt, answer, info, messages_text(prompt), content)


class _Names:
    """Names the tasks of a file once it is known what its example ids are worth."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str | None, _Content, int | None]] = []
        self._first: dict[tuple[str, str | None], _Content] = {}
        # Environments with one id for several prompts (it counts rows, or restarts with each
        # environment in the file), and with one id for several `info`; and where.
        self._positions: dict[str, int] = {}
        self._varying: dict[str, int] = {}

    def add(self, row: Row, example: str | None, content: _Content, line: int) -> None:
        """Take note of a row's task."""
        environment = row.environment
        self._rows.append((environment, example, content, row.step))
        if not content.full:  # an error row may hold its id alone
            return
        first = self._first.setdefault((environment, example), content)
        if first is not content and example is not None:
            if first.asked != content.asked:
                self._positions.setdefault(environment, line)
            elif first.full != content.full:
                self._varying.setdefault(environment, line)

    def settle(self, session: Session, account: FileReport) -> None:
        """Name every row's task and group."""
        for environment, line in self._positions.items():
            account.note(POSITION_IDS, line)
            self._varying.pop(environment, None)
        for line in self._varying.values():
            account.note(INFO_VARIES, line)
        tasks, groups = session.rows.tasks, session.rows.groups
        for at, (environment, example, content, step) in enumerate(self._rows):
            if not content.full and environment not in self._positions:
                content = self._first.get((environment, example), content)
            name = content.asked if environment in self._varying else content.full
            if example is not None and not (name and environment in self._positions):
                name = f"{example}:{name}" if name else example
            tasks[at] = name
            group = f"{environment}/{name}"
            groups[at] = group if step is None else f"{group}/step {step}"


def _own_name(task: Any) -> str | None:
    return None if task == "default" else text_of(task)


def _flat_metrics(line: Line) -> dict[str, Any]:
    return {
        name: item
        for name, item in numbers(line).items()
        if name not in BOOKKEEPING and not name.endswith("_ms")
    }


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
