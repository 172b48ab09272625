"""Before anything is measured: do our estimators compute what they say, and can the gate tell?"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import advlib
from advlib import diagnostics
from advlib.diagnostics import Check, Tolerance
from advlib.experiments._estimators import (
    arm_advantages,
    kernel_features,
    reference_advantages,
)
from advlib.experiments._work import Work, draw
from advlib.experiments.gate import SHIFT, kernel_arm, kernels_to_try
from advlib.experiments.spec import Arm, Kernel
from advlib.losses import constant, policy_gradient
from advlib.trainer import Rollouts

CLUSTERS, EACH = 4, 8
FORCED_ATOL = 2e-6
AWAY = 0.1  # how far the fixed batch's log-probabilities are moved from the sampled ones


def preflight(work: Work, params: Any) -> dict[str, Any]:
    """Every arm's advantages, loss and gradient on one batch, against float64 references.

    The responses are the starting policy's. Their rewards are made, normal and with one row that is
    not measured: rewards of a task are often all equal, and then every estimator gives zeros. The
    loss is the one that is trained, summed over the sampled tokens; the gradient is by their
    log-probabilities, at a point away from the sampled ones, so that the ratio is not 1.
    """
    found = {}
    for nth, arm in enumerate(work.spec.arms):
        rollouts, sampled, mask = _batch(work, params, arm, nth)
        candidate = _ours(arm, rollouts, sampled, mask)
        reference = _reference(arm, rollouts, sampled, mask)
        wanted = work.spec.correctness_preflight.tolerances
        tolerances = {
            name: Tolerance(one.atol, one.rtol, one.min_cosine)
            for name, one in (
                ("advantages", wanted.advantages),
                ("loss", wanted.loss),
                ("gradient", wanted.gradient),
            )
        }
        inputs = {
            "prompts": np.array([q.text for q in rollouts.questions]),
            "responses": np.array(rollouts.responses),
            "rewards": np.nan_to_num(rollouts.rewards),
            "where": rollouts.where,
            "group_ids": rollouts.group_ids,
            "sampled": sampled,
        }
        found[arm.name] = diagnostics.correctness_preflight(
            candidate, reference, tolerances, inputs=inputs
        )
    return {
        "passed": all(one.passed for one in found.values()),
        "required": work.spec.correctness_preflight.required,
        "arms": found,
    }


def _batch(work: Work, params: Any, arm: Arm, nth: int) -> tuple[Rollouts, np.ndarray, np.ndarray]:
    questions = [
        question
        for question in work.setup.train.prompts(range(arm.groups_per_batch))
        for _ in range(arm.group_size)
    ]
    drawn = draw(work, params, questions, batch_size=work.spec.batch_size, seed=1000 + nth)
    rewards = np.random.default_rng(nth).normal(size=len(questions)).astype(np.float32)
    where = np.arange(len(questions)) != len(questions) // 2
    rewards[~where] = np.nan
    features = None
    if arm.advantage == "gs1":
        features = work.features(arm.kernel)([question.text for question in questions])
    samples = drawn.samples
    rollouts = Rollouts(
        tuple(questions),
        drawn.texts,
        rewards,
        np.repeat(np.arange(arm.groups_per_batch, dtype=np.int32), arm.group_size),
        where,
        tuple("" if valid else "made" for valid in where),
        np.asarray(samples.lengths),
        np.asarray(samples.finish),
        features,
    )
    return rollouts, np.asarray(samples.log_probs, np.float64), np.asarray(samples.mask)


def _moved(sampled: np.ndarray) -> np.ndarray:
    places = np.arange(sampled.size, dtype=np.float64).reshape(sampled.shape)
    return sampled + AWAY * np.sin(places)


def _ours(
    arm: Arm, rollouts: Rollouts, sampled: np.ndarray, mask: np.ndarray
) -> dict[str, np.ndarray]:
    advantages = np.asarray(arm_advantages(arm)(rollouts), np.float32)
    kept = jnp.asarray(mask & rollouts.where[:, None])
    old = jnp.asarray(sampled, jnp.float32)
    given = jnp.broadcast_to(jnp.asarray(advantages)[:, None], old.shape)

    def loss(log_probs: jax.Array) -> jax.Array:
        return constant(policy_gradient(log_probs, old, given), kept, 1.0)

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(_moved(sampled), jnp.float32))
    return {
        "advantages": advantages,
        "loss": np.asarray(value)[None],
        "gradient": np.asarray(gradient),
    }


def _reference(
    arm: Arm, rollouts: Rollouts, sampled: np.ndarray, mask: np.ndarray
) -> dict[str, np.ndarray]:
    advantages = reference_advantages(arm, rollouts)
    kept = mask & rollouts.where[:, None]
    each = np.where(kept, -np.exp(_moved(sampled) - sampled) * advantages[:, None], 0.0)
    # The derivative of -exp(x - old) A by x is itself.
    return {"advantages": advantages, "loss": np.array([each.sum()]), "gradient": each}


def forced(work: Work) -> dict[str, Any]:
    """Batches on which a kernel must act, and must not: the baselines are known by hand."""
    arm, found = kernel_arm(work.spec), {}
    if arm is not None:
        for kernel in kernels_to_try(work.spec):
            found[kernel] = forced_tests(kernel, arm.temperature)
    return {"passed": all(one["passed"] for one in found.values()), "kernels": found}


def forced_tests(kernel: Kernel, temperature: float) -> dict[str, Any]:
    """One kernel on made prompts.

    Prompts of four clusters, alike within and strangers between, must give the analytic baseline,
    and pass the check of activation; one prompt many times must give the mean of the others, and
    fail it.

    Args:
        kernel: its name.
        temperature: T.

    Returns:
        A record with ``passed``.
    """
    kinds = np.random.default_rng(5).permutation(np.repeat(np.arange(CLUSTERS), EACH))
    rewards = np.random.default_rng(6).normal(kinds, 1.0)
    words = ("apple", "train", "tiger", "violet")
    # Disjoint words, and lengths far enough apart for buckets of their own.
    prompts = [" ".join([words[kind]] * (kind + 1)) for kind in kinds]
    features = kernel_features(kernel, prompts)
    same = kinds[:, None] == kinds
    near = (same @ rewards - rewards) / (EACH - 1)
    far = (~same @ rewards) / (EACH * (CLUSTERS - 1))
    weight = (EACH - 1) * np.exp(1 / temperature)
    others = EACH * (CLUSTERS - 1)
    analytic = (weight * near + others * far) / (weight + others)
    loo = (rewards.sum() - rewards) / (len(rewards) - 1)
    acting = _forced_case(features(prompts), rewards, analytic, temperature, acts=True)
    idle = _forced_case(
        features([prompts[0]] * len(prompts)), rewards, loo, temperature, acts=False
    )
    return {
        "passed": acting["passed"] and idle["passed"],
        "activation": acting,
        "non_activation": idle,
    }


def _forced_case(
    features: Any, rewards: np.ndarray, wanted: np.ndarray, temperature: float, *, acts: bool
) -> dict[str, Any]:
    baseline = np.asarray(
        advlib.kernel_baseline(features, rewards, temperature=temperature), np.float64
    )
    error = float(np.abs(baseline - wanted).max() / max(1.0, np.abs(wanted).max()))
    shift = diagnostics.step_metrics(features, rewards, temperature=temperature).mean_abs_shift
    gate = diagnostics.activation_gate([Check(SHIFT, min=0.01)], {SHIFT: shift})
    return {
        "passed": error <= FORCED_ATOL and gate.passed == acts,
        "max_error": error,
        "atol": FORCED_ATOL,
        "mean_abs_shift": shift,
        "check_passed": gate.passed,
        "check_should_pass": acts,
    }
