"""Does the kernel know which questions are hard? Asked before any arm is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from advlib import diagnostics
from advlib.diagnostics import EffectiveBatch
from advlib.experiments import gate
from advlib.experiments._folder import json_lines, write
from advlib.experiments._work import Work, draw
from advlib.experiments.reading import SpecError
from advlib.experiments.spec import Kernel
from advlib.trainer.environments import Question, Scored, score_all


def calibrate(work: Work, params: Any) -> dict[str, Any]:
    """Rollouts of the starting policy, the effective batch of each kernel, and the offline gate."""
    wanted = work.spec.calibration
    questions = work.setup.calibration.prompts(range(wanted.tasks))
    repeated = [question for question in questions for _ in range(wanted.rollouts)]
    drawn = draw(work, params, repeated, batch_size=work.spec.eval.batch_size, seed=wanted.seed)
    scored = score_all(work.setup.calibration, repeated, drawn.texts)
    _check_bounds(work, repeated, scored)
    rows = answers(repeated, drawn.texts, scored, "reward")
    write(work.folder.path / "calibration" / "rollouts.jsonl", json_lines(rows))
    table = np.where(scored.where, scored.rewards, np.nan).reshape(wanted.tasks, wanted.rollouts)
    prompts = [question.text for question in questions]
    estimates = {
        kernel: _estimate(work, table, prompts, kernel) for kernel in gate.kernels_to_try(work.spec)
    }
    return {
        "tasks": wanted.tasks,
        "rollouts": wanted.rollouts,
        "mean_reward": float(scored.rewards[scored.where].mean()) if scored.where.any() else None,
        **counts(scored),
        "kernels": estimates,
        "gate": _judge(work, estimates),
    }


def _check_bounds(work: Work, questions: Sequence[Question], scored: Scored) -> None:
    """A reward that the decision could not use is found before any arm is trained."""
    for criterion in work.spec.decision_rule.criteria:
        low, high = criterion.bounds
        outside = scored.where & ((scored.rewards < low) | (scored.rewards > high))
        if outside.any():
            place = int(outside.argmax())
            raise SpecError(
                f"criterion {criterion.id!r}: bounds are {low:g} and {high:g}, and a response to "
                f"{questions[place].id!r} is scored {scored.rewards[place]:g}"
            )


def answers(
    questions: Sequence[Question], texts: Sequence[str], scored: Scored, value: str
) -> list[dict[str, Any]]:
    """One object a response, for a file of JSON lines; ``value`` names what was scored."""
    return [
        {
            "id": question.id,
            "kind": question.kind,
            "prompt": question.text,
            "response": text,
            value: float(reward) if measured else None,
            "reason": reason,
        }
        for question, text, reward, measured, reason in zip(questions, texts, *scored, strict=True)
    ]


def counts(scored: Scored) -> dict[str, Any]:
    """How many responses were measured, and why others were not."""
    reasons: dict[str, int] = {}
    for reason in scored.reasons:
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "measured": int(scored.where.sum()),
        "not_measured": int((~scored.where).sum()),
        "reasons": reasons,
    }


def _estimate(
    work: Work, table: np.ndarray, prompts: list[str], kernel: Kernel
) -> EffectiveBatch | str:
    arm = gate.kernel_arm(work.spec)
    assert arm is not None
    try:
        return diagnostics.effective_batch(
            table,
            work.features(kernel)(prompts),
            temperature=arm.temperature,
            batch_size=work.spec.batch_size,
            num_resamples=work.spec.calibration.resamples,
            seed=work.spec.calibration.seed,
        )
    except ValueError as error:  # too few measured rewards: the metric is missing, the gate fails
        return str(error)


def _judge(work: Work, estimates: dict[Kernel, EffectiveBatch | str]) -> dict[str, Any] | None:
    spec = work.spec
    if not spec.activation_gate.applicable:
        return None
    checks = [
        gate.check_of(bound)
        for bound in spec.activation_gate.checks
        if gate.is_offline(bound.metric)
    ]
    tried = []
    for kernel, found in estimates.items():
        metrics: dict[str, float] = {}
        if isinstance(found, EffectiveBatch):
            values = (found.ratio, *found.interval)
            metrics = dict(zip(gate.offline_names(kernel), values, strict=True))
        tried.append(gate.Tried(kernel, metrics))
    return dict(gate.offline_gate(checks, tried)._asdict())
