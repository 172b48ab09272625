"""Arms: a few steps of each for the gate and the clock, then all steps of each."""

from __future__ import annotations

import hashlib
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from advlib import diagnostics
from advlib.experiments import gate
from advlib.experiments._estimators import arm_advantages
from advlib.experiments._folder import is_full, read_lines
from advlib.experiments._params import save_params
from advlib.experiments._start import restored
from advlib.experiments._work import Work, draw
from advlib.experiments.reading import SpecError
from advlib.experiments.spec import Arm, Kernel
from advlib.trainer import TrainingStopped, TrainSettings, question_order, train
from advlib.trainer.environments import score_all

CHECKPOINT_EVERY = 20
LAST = 10  # steps that a final mean is taken over


def train_arm(
    work: Work, params: Any, arm: Arm, seed: int, steps: int, directory: Path, kernel: Kernel | None
) -> Any:
    """Train one arm, or go on with it; the trained parameters."""
    spec = work.spec
    settings = TrainSettings(
        steps=steps,
        questions_per_step=arm.groups_per_batch,
        group_size=arm.group_size,
        max_prompt=spec.sampling.max_prompt,
        max_new=spec.sampling.max_new,
        temperature=spec.sampling.temperature,
        # A number that does not depend on the samples: the plain policy gradient, over the batch.
        denominator=float(spec.batch_size),
        kl_coef=spec.kl.coef,
        micro_batches=spec.compute.micro_batches,
        compute_dtype=spec.compute.dtype,
        disagreement_limit=spec.compute.disagreement_limit,
        seed=seed,
        checkpoint_every=CHECKPOINT_EVERY,
        keep_checkpoints=1,
    )
    begun = (directory / "checkpoints").exists()
    try:
        return _trained(work, params, arm, settings, directory, kernel)
    except (ValueError, KeyError, FileNotFoundError) as error:
        if not begun or is_full(error):
            raise
        raise SpecError(
            f"{directory} is damaged: {error}; without it, the arm is trained from its start"
        ) from error


def _trained(
    work: Work,
    params: Any,
    arm: Arm,
    settings: TrainSettings,
    directory: Path,
    kernel: Kernel | None,
) -> Any:
    judged = gate.kernel_arm(work.spec)
    return train(
        work.setup.policy,
        params,
        work.setup.train,
        tokenizer=work.setup.tokenizer,
        advantages=arm_advantages(arm),
        optimizer=work.optimizer,
        settings=settings,
        directory=directory,
        reference=params if work.spec.kl.measured or work.spec.kl.coef else None,
        features=None if kernel is None else work.features(kernel),
        kernel_temperature=0.1 if judged is None else judged.temperature,
        mesh=work.setup.mesh,
        resume=True,
        progress=work.progress,
        tensorboard=False,
    ).params


def pilot(work: Work, start: dict[str, Any], kernel: Kernel | None) -> dict[str, Any]:
    """A few steps of each arm: are the arms executed as planned, does the kernel act, how long?"""
    spec = work.spec
    entered = time.perf_counter()
    seconds: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    for arm in spec.arms:
        params, same = restored(work, start)
        directory = work.folder.path / "pilot" / arm.name
        begun = time.perf_counter()
        try:
            train_arm(work, params, arm, spec.seeds[0], spec.pilot.steps, directory, kernel)
        except TrainingStopped as stopped:
            why = f"{arm.name}, step {stopped.step}: {stopped.reason}"
            return {"arms": found, "stopped": why, "gate": None}
        spent = time.perf_counter() - begun
        steps = read_lines(directory / "metrics.jsonl")
        found[arm.name] = {"restoration": same, **_executed(steps)}
        taken = [sum(v for k, v in row.items() if k != "step") for row in _times(directory)]
        usual = statistics.median(taken[1:]) if len(taken) > 1 else spent
        seconds[f"{arm.name} step"] = usual
        seconds[f"{arm.name} first"] = max(0.0, spent - usual * len(taken))
    seconds["evaluation item"] = _time_evaluation(work, start)
    metrics = _metrics(work, found)
    checks = [gate.check_of(bound) for bound in spec.activation_gate.checks]
    left = [check for check in checks if not gate.is_offline(check.metric)]
    judged = diagnostics.activation_gate(left, metrics) if left else None
    return {
        "arms": found,
        "stopped": None,
        "metrics": metrics,
        "gate": judged,
        "restored": all(one["restoration"]["passed"] for one in found.values()),
        "feasibility": feasibility(work, seconds, spent=time.perf_counter() - entered),
    }


def feasibility(work: Work, seconds: dict[str, float], *, spent: float) -> dict[str, Any]:
    """Whether what is still to come fits the budget; seconds stand in ``timing.json``.

    Args:
        work: the run.
        seconds: what a step of each arm takes, its first one more, and an item.
        spent: seconds of the stage under way, which the folder does not know yet.
    """
    spec = work.spec
    runs = len(spec.seeds)
    ahead = sum(
        seconds[f"{arm.name} first"] + runs * spec.steps * seconds[f"{arm.name} step"]
        for arm in spec.arms
    )
    items = spec.eval.n_examples * (1 + runs * len(spec.arms))
    ahead += items * seconds["evaluation item"]
    spent += sum(work.folder.times().values())
    for name, value in seconds.items():
        work.folder.note("projection", f"per {name}", value)
    work.folder.note("projection", "spent before", spent)
    work.folder.note("projection", "ahead", ahead)
    limit = spec.budget.max_wall_minutes
    return {
        "feasible": limit is None or (spent + ahead) / 60 <= limit,
        "max_wall_minutes": limit,
        "planned": {
            "steps": spec.steps * runs * len(spec.arms),
            "rollouts": spec.steps * runs * len(spec.arms) * spec.batch_size,
            "evaluated_items": items,
        },
    }


def run_arm(
    work: Work, start: dict[str, Any], arm: Arm, seed: int, kernel: Kernel | None
) -> dict[str, Any]:
    """All steps of one arm at one seed; its parameters end in ``final.npz``."""
    spec = work.spec
    directory = work.folder.path / "arms" / arm.name / f"seed-{seed}"
    params, same = restored(work, start)
    base = {
        "arm": arm.name,
        "seed": seed,
        "restoration": same,
        "questions_sha256": _order(work, seed),
        "kernel": kernel if arm.advantage == "gs1" else None,
    }
    if not same["passed"]:
        return {**base, "finished": False, "reason": "the starting parameters are not restored"}
    try:
        trained = train_arm(work, params, arm, seed, spec.steps, directory, kernel)
    except TrainingStopped as stopped:
        why = f"step {stopped.step}: {stopped.reason}"
        return {**base, "finished": False, "reason": why}
    steps = read_lines(directory / "metrics.jsonl")
    return {
        **base,
        "finished": True,
        "reason": "",
        "params_sha256": save_params(directory / "final.npz", trained),
        "metrics_sha256": hashlib.sha256((directory / "metrics.jsonl").read_bytes()).hexdigest(),
        "steps": len(steps),
        **_executed(steps),
        "reward_first": mean(step["reward"] for step in steps[:LAST]),
        "reward_last": mean(step["reward"] for step in steps[-LAST:]),
    }


def mean(values: Any) -> float | None:
    """The mean of those that were measured."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _executed(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """What was done, by the log: not what was planned."""
    return {
        "rollouts_per_step": _only(step["samples"] for step in steps),
        "group_size": _only(step["samples"] / step["groups"] for step in steps),
        "masked": sum(step["masked"] for step in steps),
        "nonzero_advantage_fraction": _complement(
            mean(step["zero_advantage_share"] for step in steps)
        ),
        "mean_abs_shift": mean(step["mean_abs_shift"] for step in steps),
        "self_weight_max": max(
            (s["max_self_weight"] for s in steps if s["max_self_weight"] is not None), default=None
        ),
        "disagreement_max": max(step["disagreement"] for step in steps),
    }


def _metrics(work: Work, found: dict[str, dict[str, Any]]) -> dict[str, float]:
    spec = work.spec
    metrics: dict[str, Any] = {
        "executed_rollouts_per_step": _only(one["rollouts_per_step"] for one in found.values()),
        **gate.by_arm(spec, gate.GROUP_SIZE, {n: one["group_size"] for n, one in found.items()}),
        **gate.by_arm(
            spec, gate.NONZERO, {n: one["nonzero_advantage_fraction"] for n, one in found.items()}
        ),
    }
    arm = gate.kernel_arm(spec)
    if arm is not None:
        metrics[gate.SHIFT] = found[arm.name]["mean_abs_shift"]
        metrics[gate.SELF_WEIGHT] = found[arm.name]["self_weight_max"]
    return metrics


def _only(values: Any) -> Any:
    """The value that all have; None where they differ, which no check passes."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _complement(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _order(work: Work, seed: int) -> str:
    """Hash of the order of the questions, the same for every arm of a seed."""
    size = len(work.setup.train)
    most = max(arm.groups_per_batch for arm in work.spec.arms) * work.spec.steps
    return diagnostics.content_hash({"order": question_order(size, 0, most, seed=seed)})


def _times(directory: Path) -> list[dict[str, float]]:
    return read_lines(directory / "times.jsonl")


def _time_evaluation(work: Work, start: dict[str, Any]) -> float:
    """Seconds an item, compiled; what the items are scored is not kept."""
    params, _ = restored(work, start)
    size = work.spec.eval.batch_size
    questions = work.setup.held_out.prompts(range(work.spec.pilot.eval_items))
    draw(work, params, questions[:1], batch_size=size, greedy=True)
    begun = time.perf_counter()
    drawn = draw(work, params, questions, batch_size=size, greedy=True)
    score_all(work.setup.held_out, questions, drawn.texts)
    batches = -(-len(questions) // size)
    return (time.perf_counter() - begun) / (batches * size)
