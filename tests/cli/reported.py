"""NeMo Gym runs as a collector leaves them: rollouts, a sidecar, and what was meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def row(task: int, rollout: int, reward: float | None, agent: str = "orchard", **more: Any) -> dict:
    made = {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        "responses_create_params": {"input": f"{agent}, task {task}"},
        "response": {"model": "demo", "output": [], "usage": {"output_tokens": 5 + rollout}},
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }
    return made | ({} if reward is None else {"reward": reward}) | more


def masked(task: int, rollout: int, kind: str | None = None, **more: Any) -> dict:
    return row(task, rollout, more.pop("reward", 0.0), mask_sample=True, failure_kind=kind, **more)


def failed(task: int, rollout: int, kind: str = "agent_request_failed", **more: Any) -> dict:
    return {
        "_ng_failure_class": kind,
        "_ng_failure_message": "cannot connect",
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": more.pop("agent", "orchard")},
        **more,
    }


def meant(task: int, rollout: int, agent: str = "orchard") -> dict:
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": agent},
        "responses_create_params": {"input": f"{agent}, task {task}"},
    }


def write(path: Path, rows: Sequence[dict]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    return path


def run(
    folder: Path,
    rows: Sequence[dict],
    *,
    failures: Sequence[dict] = (),
    inputs: Sequence[dict] = (),
    ended: bool = False,
) -> Path:
    """A run in a folder; the path of its rollouts."""
    folder.mkdir(parents=True, exist_ok=True)
    if failures:
        write(folder / "rollouts_failures.jsonl", failures)
    if inputs:
        write(folder / "rollouts_materialized_inputs.jsonl", inputs)
    if ended:
        (folder / "rollouts_aggregate_metrics.json").write_text("[]")
    return write(folder / "rollouts.jsonl", rows)


def small(folder: Path, *, ended: bool = True) -> Path:
    """Three tasks of four rollouts: 7 measured, 2 masked, 1 failed, 2 without a row."""
    rows = [
        row(0, 0, 1.0),
        row(0, 1, 0.0),
        row(0, 2, 1.0),
        masked(0, 3, "session_lost"),
        row(1, 0, 1.0),
        row(1, 1, 0.0, failure_kind="judge_unparseable"),
        row(1, 2, 0.0, failure_reason="no answer given"),
        masked(1, 3, "session_lost", reward=1.0),
        row(2, 0, 1.0),
    ]
    return run(
        folder,
        rows,
        failures=[failed(2, 1)],
        inputs=[meant(task, rollout) for task in range(3) for rollout in range(4)],
        ended=ended,
    )
