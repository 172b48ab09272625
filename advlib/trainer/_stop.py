"""When a run must not go on, and what it leaves for whoever looks into it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from advlib.trainer._batch import Batch
from advlib.trainer._processes import is_first_process
from advlib.trainer._rollouts import Rollouts
from advlib.trainer._step import UpdateMetrics

__all__ = ["TrainingStopped", "save_batch", "why_stopped"]


class TrainingStopped(RuntimeError):
    """An update was out of bounds and has changed nothing.

    Attributes:
        step: the step, from 0.
        reason: what was out of bounds.
        saved: the folder with its batch: ``batch.npz``, ``rollouts.jsonl``.
    """

    def __init__(self, step: int, reason: str, saved: Path) -> None:
        super().__init__(
            f"step {step}: {reason}; the parameters are those before it, its batch is in {saved}"
        )
        self.step = step
        self.reason = reason
        self.saved = saved


def why_stopped(metrics: UpdateMetrics, loss_limit: float, disagreement_limit: float) -> str | None:
    """Why a step was not applied; None where it was, or where it had nothing to train on."""
    if metrics.applied or not metrics.tokens:
        return None
    loss, norm = float(metrics.loss), float(metrics.grad_norm)
    disagreement = float(metrics.disagreement)
    if math.isfinite(disagreement) and disagreement > disagreement_limit:
        return (
            f"sampler and trainer disagree by {disagreement:.3g} in a log-probability "
            f"(disagreement_limit {disagreement_limit:g})"
        )
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if abs(loss) > loss_limit:
        return f"the loss is {loss:.3g} (loss_limit {loss_limit:g})"
    return f"the norm of the gradient is {norm}"


def save_batch(folder: Path, step: int, batch: Batch, rollouts: Rollouts) -> Path:
    """Write the arrays and the texts of a batch; returns their folder."""
    saved = folder / "stopped" / f"step-{step:06d}"
    if is_first_process():
        saved.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {
            name: np.asarray(value) for name, value in batch._asdict().items() if value is not None
        }
        np.savez(saved / "batch.npz", allow_pickle=False, **arrays)
        lines = [
            msgspec.json.encode(
                {
                    "id": question.id,
                    "prompt": question.text,
                    "response": response,
                    "reward": float(reward) if valid else None,
                    "reason": reason,
                    "group": int(group),
                }
            )
            for question, response, reward, valid, reason, group in zip(
                rollouts.questions,
                rollouts.responses,
                rollouts.rewards,
                rollouts.where,
                rollouts.reasons,
                rollouts.group_ids,
                strict=True,
            )
        ]
        (saved / "rollouts.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return saved
