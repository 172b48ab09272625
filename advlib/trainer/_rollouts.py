"""One step's rollouts: what estimators are given, and what a record says about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import advlib
from advlib.diagnostics import step_metrics
from advlib.trainer._sampler import FINISH_REASONS
from advlib.trainer.environments import Question

__all__ = ["Advantages", "Features", "Rollouts", "rollout_record"]


class Rollouts(NamedTuple):
    """One step's batch, as advlib's estimators take it.

    Attributes:
        questions: (B,) what was asked; the responses to one question follow each other.
        responses: (B,) what came back.
        rewards: (B,) float32; NaN where nothing was measured.
        group_ids: (B,) int32, the place of the question in the step.
        where: (B,) booleans, True where the reward is a measurement.
        reasons: (B,) why nothing was measured; empty where it was.
        lengths: (B,) int32, tokens of the responses.
        finish: (B,) int32, an index into ``FINISH_REASONS``.
        features: one row a response, of its prompt; None where the run has no features.
        reference_kl: (B,) float32, Σ_t log π(y_t) - log ref(y_t) of the sampled tokens, in nats;
            None where the run has no reference.
    """

    questions: tuple[Question, ...]
    responses: tuple[str, ...]
    rewards: np.ndarray
    group_ids: np.ndarray
    where: np.ndarray
    reasons: tuple[str, ...]
    lengths: np.ndarray
    finish: np.ndarray
    features: Any = None
    reference_kl: np.ndarray | None = None


Advantages = Callable[[Rollouts], Any]  # -> (B,) advantages
Features = Callable[[Sequence[str]], Any]  # prompts -> (B, D) array or SciPy matrix


def rollout_record(
    rollouts: Rollouts, advantages: np.ndarray, *, temperature: float = 0.1, zero: float = 1e-6
) -> dict[str, Any]:
    """What a step's rollouts say, for the log.

    Args:
        rollouts: the rollouts.
        advantages: (B,) what they were given.
        temperature: of the kernel, where there are features.
        zero: an advantage of at most this size counts as zero.

    Returns:
        Names and values that JSON can hold, None where there is nothing to say. ``baseline`` is
        reward minus advantage, so it is a baseline where the estimator subtracts one and does not
        rescale. ``max_self_weight``, ``ess``, ``min_ess``, ``max_mutual_weight`` and
        ``residual_ratio`` are of the kernel of the features, see
        :class:`advlib.diagnostics.StepMetrics`, whatever estimator was used.
    """
    valid = rollouts.where
    rewards = np.where(valid, rollouts.rewards, 0).astype(np.float64)
    baseline = rewards - np.where(valid, advantages, 0).astype(np.float64)
    others = rewards
    if valid.sum() >= 2:
        loo = advlib.batch_leave_one_out(rollouts.rewards, where=valid)
        others = rewards - np.asarray(loo, np.float64)
    kernel: dict[str, Any] = dict.fromkeys(
        ("residual_ratio", "ess", "min_ess", "max_self_weight", "max_mutual_weight")
    )
    if rollouts.features is not None and valid.sum() >= 2:
        told = step_metrics(
            rollouts.features, rollouts.rewards, temperature=temperature, where=valid, zero=zero
        )
        kernel = {name: getattr(told, name) for name in kernel}

    def mean(values: np.ndarray) -> float | None:
        return float(values[valid].mean()) if valid.any() else None

    return {
        "reward": mean(rewards),
        "baseline": mean(baseline),
        "leave_one_out_mean": mean(others),
        "mean_abs_shift": mean(np.abs(baseline - others)),
        "zero_advantage_share": mean((np.abs(advantages) <= zero).astype(np.float64)),
        **kernel,
        "length_mean": float(rollouts.lengths.mean()),
        "length_max": int(rollouts.lengths.max()),
        "samples": len(valid),
        "groups": len(np.unique(rollouts.group_ids)),
        "masked": int((~valid).sum()),
        "masked_reasons": dict(sorted(Counter(filter(None, rollouts.reasons)).items())),
        "finish": {
            name: int((rollouts.finish == code).sum()) for code, name in enumerate(FINISH_REASONS)
        },
        "rewards": _listed(rewards, valid),
        "baselines": _listed(baseline, valid),
        "leave_one_out_means": _listed(others, valid),
    }


def _listed(values: np.ndarray, valid: np.ndarray) -> list[float | None]:
    return [float(value) if ok else None for value, ok in zip(values, valid, strict=True)]
