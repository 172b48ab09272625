"""Metrics of one step, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse

from advlib import diagnostics as dx
from advlib.diagnostics import _step


def loop(features, rewards, temperature):
    units = [x / np.linalg.norm(x) if np.any(x) else x for x in features]
    size = len(rewards)
    p = np.array(
        [
            [0.0 if i == j else math.exp(units[i] @ units[j] / temperature) for j in range(size)]
            for i in range(size)
        ]
    )
    p /= p.sum(1, keepdims=True)
    kernel = rewards - p @ rewards
    plain = rewards - (rewards.sum() - rewards) / (size - 1)
    return {
        "residual_ratio": (plain**2).sum() / (kernel**2).sum(),
        "ess": (1 / (p**2).sum(1)).mean(),
        "min_ess": (1 / (p**2).sum(1)).min(),
        "max_self_weight": p.diagonal().max(),
        "max_mutual_weight": (p * p.T).max(),
        "zero_advantage_share": (abs(kernel) <= 1e-6).mean(),
        "mean_abs_shift": abs(kernel - plain).mean(),
        "num_samples": size,
    }


@pytest.mark.parametrize("sparse", [False, True])
def test_equals_plain_loops(sparse, monkeypatch):
    monkeypatch.setattr(_step, "ROWS_AT_ONCE", 5)  # several tiles, the last one ragged
    rng = np.random.default_rng(0)
    features, rewards = rng.random((23, 4)), rng.normal(3, 1, 23)
    features[2] = 0
    where = rng.random(23) < 0.8
    rewards[~where] = np.nan
    given = scipy.sparse.csr_matrix(features) if sparse else features
    seen = dx.step_metrics(given, rewards, temperature=0.2, where=where)
    wanted = loop(features[where], rewards[where], 0.2)
    assert seen._asdict() == pytest.approx(wanted)


def test_two_twins_are_each_others_baseline():
    features = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    seen = dx.step_metrics(features, [1.0, 1.0, 0.0, 0.0], temperature=1e-4)
    assert seen.max_mutual_weight == pytest.approx(1)
    assert seen.zero_advantage_share == 1.0
    assert math.isnan(seen.residual_ratio)
    assert seen.ess == pytest.approx(1)
    plain = dx.step_metrics(features, [1.0, 1.0, 0.0, 0.0], temperature=math.inf)
    assert plain.residual_ratio == pytest.approx(1)
    assert plain.mean_abs_shift == pytest.approx(0, abs=1e-12)
    assert plain.max_mutual_weight == pytest.approx(1 / 9)


def test_constant_rewards_have_exact_zeros():
    features = np.random.default_rng(1).random((9, 3))
    assert dx.step_metrics(features, [0.97] * 9).zero_advantage_share == 1.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rewards": [1.0, None, 0.0]}, ValueError, "rewards must be finite.*row 1"),
        ({"rewards": [[1.0], [0.0], [0.0]]}, ValueError, "one dimension"),
        ({"rewards": ["a", "b", "c"]}, TypeError, "rewards must be numbers"),
        ({"where": [True, False, False]}, ValueError, "two samples.*got 1"),
        ({"where": [True]}, ValueError, "same length"),
        ({"features": np.eye(2)}, ValueError, "one row a sample"),
        ({"temperature": 0}, ValueError, "temperature"),
    ],
)
def test_bad_input_is_named(change, error, message):
    given = {"features": np.eye(3), "rewards": [1.0, 0.0, 0.0], **change}
    with pytest.raises(error, match=message):
        dx.step_metrics(given.pop("features"), given.pop("rewards"), **given)
