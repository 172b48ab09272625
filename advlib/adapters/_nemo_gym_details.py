"""What a report on a NeMo Gym run asks for beyond the table: other numbers, and the denominator.

`X_materialized_inputs.jsonl` beside `X.jsonl` holds every rollout that the run meant to make. A key
of it that has no row anywhere was left out on purpose where the run ended, which its aggregate
metrics beside it show, and where every line of its files could be read. Otherwise nobody can tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from advlib.adapters._files import COMPRESSED, INPUTS
from advlib.adapters._json import UNSET, numbers, repair, shaped, value
from advlib.adapters._lines import Line, read_lines
from advlib.adapters._report import MALFORMED, TORN, TWO_RECORDS, Dispatched, FileReport, Tally
from advlib.adapters._values import get, label, number, text_of, whole
from advlib.adapters.verifiers import UNKNOWN

METRIC = "metric:"  # before the name of another number of the row, in the name of its column
PERFORMANCE = "perf:"  # before the name of a number of `ng_perf`
ROLLOUT_INDEX = "rollout_index"
_AGGREGATES = "_aggregate_metrics.json"
_NO_METRICS = ("reward", "mask_sample")
_PERFORMANCE = (
    "num_turns",
    "total_latency_ms",
    "prompt_tokens",
    "cached_prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "token_observability_coverage",
)
REPORTED = PERFORMANCE + "reported"  # 1 where the row has an `ng_perf`, whatever it holds


class Input(msgspec.Struct, gc=False):
    """A rollout that was to be made."""

    task_index: Any = msgspec.field(name="_ng_task_index", default=UNSET)
    rollout_index: Any = msgspec.field(name="_ng_rollout_index", default=UNSET)
    environment_server: Any = msgspec.field(name="_ng_environment_server", default=UNSET)
    agent_ref: Any = UNSET
    task_source: Any = UNSET


_DECODER = msgspec.json.Decoder(Input)


def environment_of(server: Any, agent_ref: Any, task_source: Any) -> str:
    """The name of a row's environment."""
    return text_of(server, get(agent_ref, "name"), task_source) or UNKNOWN


def extras(line: Line, rollout_index: Any, usage: Any, performance: Any) -> dict[str, Any]:
    """The columns of one row beside the schema's: its place among its task's, and its numbers.

    Those are the booleans and numbers at the top of the line whose name has no leading underscore,
    and the numbers of `response.usage`.
    """
    found: dict[str, Any] = {}
    index = whole(rollout_index)
    if index is not None:
        found[ROLLOUT_INDEX] = index
    named = {
        name: item
        for name, item in numbers(line, booleans=True).items()
        if not name.startswith("_") and name not in _NO_METRICS
    }
    if isinstance(usage, dict):
        named.update(usage)
    for name, item in named.items():
        if (measured := number(item)) is not None:
            found[METRIC + name] = measured
    reported = value(performance)
    if isinstance(reported, dict):
        found[REPORTED] = 1.0
        for name in _PERFORMANCE:
            if (measured := number(reported.get(name, UNSET))) is not None:
                found[PERFORMANCE + name] = measured
    return found


class Run:
    """The files of one run, as far as its account needs them."""

    def __init__(self) -> None:
        self.accounts: list[FileReport] = []
        self.keys: set[tuple[str, str]] = set()
        self.environments: set[str] = set()

    def saw(self, task: str | None, rollout: str | None, environment: str | None = None) -> None:
        """There is a row of this key."""
        if task is not None and rollout is not None:
            self.keys.add((task, rollout))
        if environment is not None:
            self.environments.add(environment)

    def conclude(self, path: str, tasks: Mapping[tuple[str, str], str]) -> None:
        """Compare the rows of a run with the rollouts that it meant to make, where it says which.

        Args:
            path: the run's main file, without a suffix of compression.
            tasks: what the task of an environment and index is called.
        """
        base = path.removesuffix(".jsonl")
        names = [base + INPUTS + suffix for suffix in ("", *COMPRESSED)]
        inputs = next((name for name in names if os.path.isfile(name)), None)
        if inputs is None:
            return
        found = Dispatched(path=inputs)
        wanted: dict[tuple[str, str], tuple[str, int]] = {}
        scratch = FileReport(path=inputs)
        for line in read_lines(inputs, scratch):
            item = _decoded(line)
            task = label(item.task_index) if item is not None else None
            rollout = label(item.rollout_index) if item is not None else None
            if item is None or task is None or rollout is None:
                found.unreadable += 1
                continue
            name = environment_of(item.environment_server, item.agent_ref, item.task_source)
            if name == UNKNOWN and len(self.environments) == 1:
                (name,) = self.environments
            wanted.setdefault((task, rollout), (name, line.number))
        found.rollouts = len(wanted)
        found.surplus = len(self.keys - wanted.keys())
        for key, (name, at) in wanted.items():
            if key not in self.keys:
                found.absent.setdefault(name, Tally()).add(at)
                task = tasks.get((name, key[0]), key[0])
                of = found.absent_of.setdefault(name, {})
                of[task] = of.get(task, 0) + 1
        lost = sum(
            tally.count
            for account in self.accounts
            for reason, tally in account.reported.items()
            if reason in (MALFORMED, TORN, TWO_RECORDS)
        )
        found.ended = os.path.isfile(base + _AGGREGATES) and not lost
        self.accounts[0].dispatched = found


def _decoded(line: Line) -> Input | None:
    try:
        return _DECODER.decode(line.data)
    except (msgspec.MsgspecError, RecursionError):
        fields = repair(line).fields
        return None if fields is None else shaped(Input, fields)
