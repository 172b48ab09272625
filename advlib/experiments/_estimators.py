"""The advantages of an arm: by advlib, and once more by loops in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import advlib
from advlib.experiments.spec import Arm, Kernel
from advlib.trainer import Rollouts

Features = Callable[[Sequence[str]], Any]
NUM_BUCKETS = 8


def kernel_features(kernel: Kernel, training_prompts: Sequence[str]) -> Features:
    """Features of prompts, fitted once on the training questions.

    Args:
        kernel: "tfidf", "words" (tokens with a digit left out) or "length" (buckets of characters,
            with the training questions' quantiles as edges).
        training_prompts: what to fit on.

    Returns:
        A function of (B,) prompts that gives (B, D) features, the same for a prompt in any batch.
    """
    if kernel == "length":
        lengths = [len(prompt) for prompt in training_prompts]
        edges = np.quantile(lengths, np.arange(1, NUM_BUCKETS) / NUM_BUCKETS)

        def buckets(prompts: Sequence[str]) -> np.ndarray:
            place = np.searchsorted(edges, [len(prompt) for prompt in prompts], side="left")
            return (place[:, None] == np.arange(NUM_BUCKETS)).astype(np.float32)

        return buckets
    from advlib import text

    fitted = text.fit_tfidf(training_prompts, words_only=kernel == "words")
    return fitted.transform


def arm_advantages(arm: Arm) -> Callable[[Rollouts], Any]:
    """The estimator of an arm, as the training loop calls it."""
    if arm.advantage == "gs1":
        return lambda r: advlib.gs1(
            r.features, r.rewards, temperature=arm.temperature, where=r.where
        )
    if arm.advantage in ("batch_mean", "batch_leave_one_out"):
        whole = getattr(advlib, arm.advantage)
        return lambda r: whole(r.rewards, where=r.where)
    grouped = getattr(advlib, arm.advantage)
    # One number of groups for every step: nothing is compiled anew.
    return lambda r: grouped(r.rewards, r.group_ids, where=r.where, num_groups=arm.groups_per_batch)


def reference_advantages(arm: Arm, rollouts: Rollouts) -> np.ndarray:
    """The advantages of an arm from the definitions, in float64, one sample at a time.

    Args:
        arm: whose estimator.
        rollouts: the batch; ``features`` where the estimator is gs1.

    Returns:
        (B,) float64.
    """
    rewards = np.asarray(rollouts.rewards, np.float64)
    valid = [place for place in range(len(rewards)) if rollouts.where[place]]
    groups = np.asarray(rollouts.group_ids)
    cosines = _cosines(rollouts.features) if arm.advantage == "gs1" else None
    result = np.zeros(len(rewards))
    for i in valid:
        if arm.advantage in ("group_mean", "grpo", "leave_one_out"):
            peers = [j for j in valid if groups[j] == groups[i]]
        else:
            peers = valid
        others = [j for j in peers if j != i]
        if not others:
            continue
        if cosines is not None:
            weights = [np.exp((cosines[i, j] - 1) / arm.temperature) for j in others]
            baseline = float(np.dot(weights, rewards[others]) / np.sum(weights))
        elif arm.advantage in ("leave_one_out", "batch_leave_one_out"):
            baseline = float(np.mean(rewards[others]))
        else:
            baseline = float(np.mean(rewards[peers]))
        result[i] = rewards[i] - baseline
        if arm.advantage == "grpo":
            result[i] /= float(np.std(rewards[peers], ddof=1)) + 1e-6
    return result


def _cosines(features: Any) -> np.ndarray:
    rows = np.asarray(features.toarray() if hasattr(features, "toarray") else features, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units @ units.T
