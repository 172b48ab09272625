"""NeMo Gym rollouts: the verify response of one rollout a line, and the sidecar of failed attempts.

A row is keyed inside its run by task and rollout index. `X_failures.jsonl` belongs to `X.jsonl`:
its rows stand only where the main file has none of that key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from advlib.adapters._files import SIDECAR, plain_name
from advlib.adapters._format import FileReader, Format, Outcome, Session
from advlib.adapters._json import UNSET, digest, value
from advlib.adapters._lines import Line
from advlib.adapters._nemo_gym_details import Run, environment_of, extras
from advlib.adapters._report import REUSED_ID, FileReport, FormatError
from advlib.adapters._rows import Row
from advlib.adapters._values import (
    components,
    get,
    holds,
    label,
    mask_source,
    messages_text,
    read_reward,
    text_of,
    whole,
)
from advlib.adapters.verifiers import UNKNOWN

FAILURE_CLASS = "failure_class"  # a column beside the schema's, only where it adds something

_ROLLOUT_KEY = re.compile(r"(\d+)-(\d+)")


class Request(msgspec.Struct, gc=False):
    """What was asked of the policy."""

    input: Any = UNSET
    instructions: Any = UNSET
    metadata: Any = UNSET


class Response(msgspec.Struct, gc=False):
    """What the policy answered; the output itself is rarely looked at."""

    model: Any = UNSET
    usage: Any = UNSET
    status: Any = UNSET
    incomplete_details: Any = UNSET
    output: msgspec.Raw | msgspec.UnsetType = UNSET


class Rollout(msgspec.Struct, gc=False):
    """The fields of a line that the table has a place for, of all three kinds of line."""

    task_index: Any = msgspec.field(name="_ng_task_index", default=UNSET)
    rollout_index: Any = msgspec.field(name="_ng_rollout_index", default=UNSET)
    rollout_id: Any = msgspec.field(name="_ng_rollout_id", default=UNSET)
    environment_server: Any = msgspec.field(name="_ng_environment_server", default=UNSET)
    agent_ref: Any = UNSET
    task_source: Any = UNSET
    responses_create_params: Request | msgspec.UnsetType = UNSET
    response: Response | msgspec.UnsetType = UNSET
    reward: Any = UNSET
    reward_components: Any = UNSET
    truncated: Any = UNSET
    mask_sample: Any = UNSET
    instance_config: Any = UNSET
    failure_kind: Any = UNSET
    failure_reason: Any = UNSET
    failure_class: Any = msgspec.field(name="_ng_failure_class", default=UNSET)
    judge_error: Any = msgspec.field(name="_ng_failure_judge_error", default=UNSET)
    failure_message: Any = msgspec.field(name="_ng_failure_message", default=UNSET)
    # A strict RolloutFailure record has these instead.
    episode_id: Any = UNSET
    failure: Any = UNSET
    delivery: Any = UNSET
    # Routed nowhere by the collector; a file that holds such a row was made by something else.
    no_persist: Any = msgspec.field(name="_ng_no_persist", default=UNSET)
    performance: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="ng_perf", default=UNSET)


_NO_REQUEST, _NO_RESPONSE = Request(), Response()


def recognises(rollout: Rollout) -> bool:
    """Whether a record is a row of the main file, of the sidecar, or a RolloutFailure."""
    return (
        rollout.responses_create_params is not UNSET
        or rollout.task_index is not UNSET
        or rollout.rollout_index is not UNSET
        or rollout.failure_class is not UNSET
        or _is_failure(rollout)
    )


def open_file(session: Session, account: FileReport) -> FileReader:
    """Start reading one file."""
    plain = plain_name(account.path)
    sidecar = plain.endswith(SIDECAR)
    # Ids count inside one run, and the main file's name stands for the run.
    run = plain.removesuffix(SIDECAR) + ".jsonl" if sidecar else plain
    names: dict[tuple[str, str], str] = session.memory.setdefault(("nemo_gym", run), {})
    whole_run = _runs(session).setdefault(run, Run()) if session.details else None
    if whole_run is not None:
        whole_run.accounts.append(account)

    asked = _NO_REQUEST
    prompt: str | None = None

    def parse(rollout: Rollout, line: Line) -> Sequence[Outcome]:
        nonlocal asked, prompt
        if rollout.failure is not UNSET and _is_failure(rollout):
            return (_failure_row(rollout, run, line, whole_run),)
        request = rollout.responses_create_params or _NO_REQUEST
        response = rollout.response or _NO_RESPONSE
        index = label(rollout.task_index)
        key = _rollout_key(rollout, index)
        source = mask_source(rollout.mask_sample, rollout.instance_config, rollout.failure_class)
        left_out = rollout.no_persist is not UNSET and bool(rollout.no_persist)
        if left_out:
            source = "no_persist" if source is None else f"{source}+no_persist"
        # The rollouts of a task often stand together: join its text once.
        if asked.input != request.input or asked.instructions != request.instructions:
            asked = request
            prompt = _joined(request.instructions, messages_text(request.input))
        (reward, reason), parts = read_reward(
            rollout.reward, session.reward_key, account.path, line
        )
        row = Row(
            environment=_environment(rollout),
            task="",
            group="",
            rollout_id=None if key is None else f"{run}#{key}",
            prompt=prompt,
            reward=reward,
            reward_components=components(rollout.reward_components or parts),
            failure_kind=text_of(rollout.failure_kind, rollout.failure_class),
            failure_reason=text_of(
                rollout.failure_reason, rollout.judge_error, rollout.failure_message
            ),
            mask_source=source,
            truncated=_truncated(response, rollout.truncated),
            response_length=_length(response),
            policy=text_of(response.model),
            fallback=sidecar or left_out or (source is not None and "failure_class" in source),
        ).judge(reason)
        if rollout.failure_class is not UNSET:
            row.extras = _failure_class(rollout.failure_class, row.failure_kind)
        if whole_run is not None:
            whole_run.saw(index, label(rollout.rollout_index), row.environment)
            more = extras(line, rollout.rollout_index, response.usage, rollout.performance)
            row.extras = {**(row.extras or {}), **more}
        row.task = _task(index, request, row, names, session, account, line)
        row.group = f"{row.environment}/{row.task}"
        return (row,)

    return FileReader(parse)


FORMAT = Format(
    name="nemo_gym",
    looks_for="an object with `responses_create_params`, `_ng_task_index` or `_ng_failure_class`",
    decoder=msgspec.json.Decoder(Rollout),
    recognises=recognises,
    open=open_file,
)


def compare_with_inputs(session: Session) -> None:
    """Set rows against what each run meant to make, where details were asked for."""
    for run, whole_run in _runs(session).items():
        whole_run.conclude(run, session.memory[("nemo_gym", run)])


def _runs(session: Session) -> dict[str, Run]:
    runs: dict[str, Run] = session.memory.setdefault(("nemo_gym", "runs"), {})
    return runs


def _failure_class(name: Any, kind: str | None) -> dict[str, Any] | None:
    """The class of a failed attempt as a column of its own, where the kind is another word."""
    told = text_of(name)
    return None if told is None or told == kind else {FAILURE_CLASS: told}


def _task(
    index: str | None,
    request: Request,
    row: Row,
    names: dict[tuple[str, str], str],
    session: Session,
    account: FileReport,
    line: Line,
) -> str:
    known = None if index is None else names.get((row.environment, index))
    if known is not None:
        return known
    identity = None
    if holds(request.input) or holds(request.metadata):
        asked = (request.input, request.instructions, request.metadata)
        identity = digest(*(None if part is UNSET else part for part in asked))
    if index is None:
        if identity is None and row.valid:
            raise FormatError(
                f"{account.path}:{line.number}: no task to group by: looked for `_ng_task_index`, "
                "else for `responses_create_params` with an input or metadata"
            )
        return identity or f"unknown:{row.rollout_id or line.number}"
    if identity is None:
        return index
    # Inside a run the index is the task; between runs only if it asks for the same thing.
    name = index
    if not session.rows.claim(f"{row.environment}/{index}", identity):
        name = f"{index}@{identity}"
        account.note(REUSED_ID, line.number)
    names[row.environment, index] = name
    return name


def _length(response: Response) -> int | None:
    length = whole(get(response.usage, "output_tokens"))
    output = response.output
    if length is not None or output is UNSET or not _has_tokens(output):
        return length
    items = value(output)
    tokens = [get(item, "generation_token_ids") for item in items or () if isinstance(items, list)]
    return sum(len(ids) for ids in tokens if isinstance(ids, list)) or None


def _has_tokens(output: msgspec.Raw) -> bool:
    return b"generation_token_ids" in bytes(memoryview(output))


def _truncated(response: Response, top: Any) -> bool | None:
    if response.incomplete_details or response.status == "incomplete":
        return get(response.incomplete_details, "reason") in (None, "max_output_tokens")
    if top is True or top is False:
        return top
    return False if response.status == "completed" else None


def _rollout_key(rollout: Rollout, index: str | None) -> str | None:
    if rollout.rollout_id is not UNSET and (explicit := label(rollout.rollout_id)) is not None:
        return explicit
    nth = label(rollout.rollout_index)
    return None if index is None or nth is None else f"{index}-{nth}"


def _environment(rollout: Rollout) -> str:
    return environment_of(rollout.environment_server, rollout.agent_ref, rollout.task_source)


def _is_failure(rollout: Rollout) -> bool:
    return (
        rollout.failure is not UNSET
        and rollout.episode_id is not UNSET
        and rollout.delivery is not UNSET
    )


def _failure_row(rollout: Rollout, run: str, line: Line, whole_run: Run | None) -> Row:
    """A strict RolloutFailure record: it has no reward, and none is inferred."""
    key = label(get(rollout.episode_id, "rollout_id"))
    match = _ROLLOUT_KEY.fullmatch(key or "")
    task = match[1] if match else f"unknown:{key or line.number}"
    if match and whole_run is not None:
        whole_run.saw(match[1], match[2])
    return Row(
        environment=UNKNOWN,
        task=task,
        group=f"{UNKNOWN}/{task}",
        rollout_id=None if key is None else f"{run}#{key}",
        failure_kind=text_of(get(rollout.failure, "failure_kind")),
        failure_reason=text_of(get(rollout.failure, "failure_reason")),
        fallback=True,
    ).judge(None, failed=True)


def _joined(*texts: Any) -> str | None:
    return "\n\n".join(text for text in texts if isinstance(text, str) and text) or None
