"""Batches made so that the kernel must act, and so that it must not: baselines known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import advlib
from advlib import diagnostics as dx
from advlib import text


def clustered(clusters: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Features with cosine 1 in a cluster and 0 between, and rewards in shuffled order."""
    rng = np.random.default_rng(4)
    kind = rng.permutation(np.repeat(np.arange(clusters), size))
    return kind, rng.normal(kind, 1.0)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_clusters_give_the_analytic_baseline(temperature):
    clusters, size = 4, 8
    kind, rewards = clustered(clusters, size)
    same = kind[:, None] == kind
    near = (same @ rewards - rewards) / (size - 1)
    far = (~same @ rewards) / (clusters * size - size)
    weight = (size - 1) * math.exp(1 / temperature)
    wanted = (weight * near + (clusters - 1) * size * far) / (weight + (clusters - 1) * size)
    features = np.eye(clusters)[kind]
    got = advlib.kernel_baseline(features, rewards, temperature=temperature)
    np.testing.assert_allclose(got, wanted, atol=2e-6)
    step = dx.step_metrics(features, rewards, temperature=temperature)
    plain = (rewards.sum() - rewards) / (len(rewards) - 1)
    assert step.mean_abs_shift == pytest.approx(np.abs(wanted - plain).mean())
    assert step.max_self_weight == 0


def test_clusters_of_words_give_the_same():
    kind, rewards = clustered(4, 8)
    subjects = ["apples pears", "trains buses", "lions tigers", "roses tulips"]
    prompts = [subjects[k] for k in kind]
    features = text.fit_tfidf(subjects).transform(prompts)
    np.testing.assert_allclose(
        advlib.kernel_baseline(features, rewards),
        advlib.kernel_baseline(np.eye(4)[kind], rewards),
        atol=2e-6,
    )


def test_identical_prompts_give_the_mean_of_the_others():
    _, rewards = clustered(4, 8)
    features = text.fit_tfidf(["how many apples"]).transform(["how many apples"] * 32)
    got = advlib.kernel_baseline(features, rewards)
    np.testing.assert_allclose(got, (rewards.sum() - rewards) / 31, atol=2e-6)
    step = dx.step_metrics(features, rewards)
    assert step.residual_ratio == pytest.approx(1)
    assert step.mean_abs_shift == pytest.approx(0, abs=1e-12)
    gate = dx.activation_gate(
        dx.GS1_CHECKS[1:2], {"pilot_mean_abs_gs1_minus_batchmean_baseline": step.mean_abs_shift}
    )
    assert not gate.passed


def test_step_metrics_are_those_of_the_estimator():
    kind, rewards = clustered(3, 9)
    features = np.eye(3)[kind] + np.random.default_rng(0).random((27, 3))
    step = dx.step_metrics(features, rewards, temperature=0.2)
    kernel = np.asarray(advlib.gs1(features, rewards, temperature=0.2), np.float64)
    plain = np.asarray(advlib.batch_leave_one_out(rewards), np.float64)
    assert step.residual_ratio == pytest.approx((plain**2).sum() / (kernel**2).sum(), rel=1e-4)
    assert step.mean_abs_shift == pytest.approx(np.abs(kernel - plain).mean(), rel=1e-4)
