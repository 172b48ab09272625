"""Rows made for the tests, in each format, and files of them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

from advlib import adapters

GOOD = '{"example_id":0,"prompt":"p","completion":"c","reward":1}'


def legacy(example: int | None = 0, reward: Any = 1.0, prompt: Any = "p", **more: Any) -> dict:
    row = {"example_id": example, "prompt": prompt, "completion": "c", "reward": reward, **more}
    return {name: item for name, item in row.items() if not (name == "example_id" and item is None)}


def trace(name: str, rewards: Any = None, *, info: dict | None = None, **more: Any) -> dict:
    return {
        "version": 1,
        "id": name,
        "agent": {"name": "agent", "trainable": True, "config": {}},
        "nodes": [
            {"message": {"role": "user", "content": "pick"}, "sampled": False},
            {
                "parent": 0,
                "message": {"role": "assistant", "content": "this"},
                "sampled": True,
                "token_ids": [1, 2, 3],
                "mask": [False, True, True],
            },
        ],
        "calls": [],
        "rewards": {"right": {"score": 1.0, "weight": 1.0}} if rewards is None else rewards,
        "info": info or {},
        "ok": True,
        "errors": [],
        **more,
    }


def episode(*traces: dict, group: str | None = "g", key: str = "t1", **more: Any) -> dict:
    made = {
        "id": "e-" + (traces[0].get("id", "") if traces else "none"),
        "env": {"id": "picker", "name": "picker-train"},
        "task": {"type": "T", "data": {"idx": 0, "prompt": "pick"}, "key": key},
        "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 3}},
        "ok": True,
        "errors": [],
        "traces": list(traces),
        **more,
    }
    return made if group is None else {**made, "group": {"id": group}}


def nemo(task: int | None = 0, rollout: int = 0, reward: Any = 1.0, **more: Any) -> dict:
    row = {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "agent_a"},
        "responses_create_params": {"input": [{"role": "user", "content": f"task {task}"}]},
        "response": {"model": "m", "output": [], "usage": {"output_tokens": 5}},
        "reward": reward,
        **more,
    }
    return {name: item for name, item in row.items() if item is not MISSING}


MISSING = object()


def write_lines(path: Path, *rows: Any) -> Path:
    """A file of JSON lines; a string or bytes stands for itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for row in rows:
            if isinstance(row, str):
                row = row.encode()
            file.write(row if isinstance(row, bytes) else json.dumps(row).encode())
            file.write(b"\n")
    return path


def read(path: Any, format: str = "auto", **options: Any) -> pa.Table:
    """Read with warnings aside, and check that the account closes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adapters.ReadWarning)
        table = adapters.read(path, format, **options)
    account = adapters.report(table)
    account.check()
    assert account.rows == table.num_rows
    ids = table.column("rollout_id").to_pylist()
    assert len(set(ids)) == len(ids)
    for row in table.select(["valid", "invalid_reason", "reward"]).to_pylist():
        assert row["valid"] == (row["invalid_reason"] is None)
        assert row["reward"] is not None or not row["valid"]
    return table


def rows(path: Any, format: str = "auto", **options: Any) -> list[dict[str, Any]]:
    return read(path, format, **options).to_pylist()


def reported(table: pa.Table) -> dict[str, int]:
    return adapters.report(table).reported
