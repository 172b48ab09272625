"""Every final policy on the same items, greedily, by one grader."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from advlib.experiments._calibration import answers, counts
from advlib.experiments._checking import START
from advlib.experiments._folder import json_lines, read_lines, write
from advlib.experiments._params import load_params
from advlib.experiments._work import Work, draw
from advlib.experiments.spec import Spec
from advlib.trainer import place_state
from advlib.trainer.environments import score_all


def who(arm: str, seed: int | None = None) -> str:
    """Name of an evaluated policy: the start, or an arm at a seed."""
    return arm if seed is None else f"{arm}/seed-{seed}"


def evaluated(spec: Spec) -> list[tuple[str, int | None]]:
    """The policies to evaluate, in their order."""
    trained = [(arm.name, seed) for seed in spec.seeds for arm in spec.arms]
    return [(START, None), *trained]


def evaluate(work: Work, arm: str, seed: int | None, sha256: str) -> dict[str, Any]:
    """Greedy answers of one policy; a line an item goes to ``evaluation/``.

    Args:
        work: the run.
        arm: name of an arm, or "start".
        seed: of the arm; None for the start.
        sha256: of the policy's parameters.
    """
    spec, setup = work.spec, work.setup
    path = work.start_params()
    if seed is not None:
        path = work.folder.path / "arms" / arm / f"seed-{seed}" / "final.npz"
    params = place_state(load_params(path, setup.params, sha256=sha256), setup.mesh)
    questions = setup.held_out.prompts(range(spec.eval.n_examples))
    drawn = draw(work, params, questions, batch_size=spec.eval.batch_size, greedy=True)
    scored = score_all(setup.held_out, questions, drawn.texts)
    rows = answers(questions, drawn.texts, scored, "score")
    text = json_lines(rows)
    write(_path(work, arm, seed), text)
    kinds: dict[str, list[float]] = {}
    for question, reward, known in zip(questions, scored.rewards, scored.where, strict=True):
        if known:
            kinds.setdefault(question.kind, []).append(float(reward))
    measured = scored.rewards[scored.where]
    return {
        "policy": who(arm, seed),
        "arm": arm,
        "seed": seed,
        "items": len(rows),
        "accuracy": float(measured.mean()) if measured.size else None,
        **counts(scored),
        "by_kind": {kind: float(np.mean(scores)) for kind, scores in sorted(kinds.items())},
        "items_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def evaluator(spec: Spec, code_sha256: str) -> dict[str, Any]:
    """What scored, for all policies; its hash is the grader's identity."""
    told = {
        "code_sha256": code_sha256,
        "environment": msgspec.to_builtins(spec.environment),
        "decoding": {"temperature": 0, "max_new": spec.sampling.max_new},
        "items": spec.eval.n_examples,
    }
    return {**told, "sha256": hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()}


def item_scores(work: Work, record: dict[str, Any]) -> dict[str, float | None]:
    """Scores by id of the item, of an evaluated policy; None where it was not measured."""
    path = _path(work, record["arm"], record["seed"])
    return {row["id"]: row["score"] for row in read_lines(path, sha256=record["items_sha256"])}


def _path(work: Work, arm: str, seed: int | None) -> Path:
    name = START if seed is None else f"{arm}-seed-{seed}"
    return work.folder.path / "evaluation" / f"{name}.jsonl"
