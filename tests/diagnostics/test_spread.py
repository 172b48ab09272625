"""What the interval is made of: batches without a task, pulls, and a bootstrap over tasks."""

from __future__ import annotations

import numpy as np
import pytest

from advlib.diagnostics._features import neighbour_weights
from advlib.diagnostics._score import _batch_errors, draw
from advlib.diagnostics._spread import log_ratio_spread, pulls


def errors(weights, seen, target, floor, noise):
    """Σ_i (target_i - Σ_j p_ij seen_j)² - floor_i + Σ_j p_ij² noise_j, by loops."""
    total = 0.0
    for i, row in enumerate(weights):
        p = row / row.sum()
        total += (target[i] - p @ seen) ** 2 - floor[i] + p**2 @ noise
    return total


@pytest.mark.parametrize("temperature", [0.05, 0.3, np.inf])
def test_gains_are_what_taking_a_task_out_changes(temperature):
    rng = np.random.default_rng(0)
    size = 6
    cosine = rng.uniform(-1, 1, (3, size, size))
    weights = neighbour_weights(cosine, temperature)
    views = rng.normal(size=(2, 3, size)), rng.random((2, 3, size))
    seen, target, floor, noise = (view for pair in views for view in pair)
    found = _batch_errors(weights, seen, target, floor, noise)
    for batch in range(3):
        given = (seen[batch], target[batch], floor[batch], noise[batch])
        whole = errors(weights[batch], *given)
        assert found.errors[batch] == pytest.approx(whole / size)
        for task in range(size):
            keep = np.arange(size) != task
            rest = errors(weights[batch][keep][:, keep], *(view[keep] for view in given))
            assert found.gains[batch, task] == pytest.approx(whole - rest, rel=1e-5)


def test_gains_where_one_neighbour_has_all_the_weight():
    cosine = np.array([[[1, 1, 0.0], [1, 1, 0], [0.5, 0, 1]]])
    weights = neighbour_weights(cosine, 1e-3)
    seen = np.array([[1.0, 2.0, 4.0]])
    nothing = np.zeros((1, 3))
    found = _batch_errors(weights, seen, seen, nothing, nothing)
    # Rows: 1 and 2 see each other, 3 sees 1. A row without its only neighbour is compared with 0.
    whole = 1 + 1 + 9
    np.testing.assert_allclose(found.gains[0], [whole - 4 - 16, whole - 1 - 9, whole - 1 - 1])


def test_the_pull_of_a_plain_mean_is_the_own_number():
    rng = np.random.default_rng(1)
    batches = draw(12, 4, 30, rng)
    numbers, own = rng.normal(size=12), rng.normal(size=12)
    found = pulls(batches, numbers[batches], own)
    wanted = numbers + own
    np.testing.assert_allclose(found.mean, wanted - wanted.mean())
    np.testing.assert_allclose(found.noise, 0, atol=1e-12)


def test_batches_hold_different_tasks_equally_often():
    batches = draw(10, 4, 25, np.random.default_rng(2))
    assert batches.shape == (25, 4)
    assert all(len(set(batch)) == 4 for batch in batches.tolist())
    decks = draw(12, 4, 30, np.random.default_rng(2))
    assert set(np.bincount(decks.ravel()).tolist()) == {10}
    whole = draw(5, 5, 3, np.random.default_rng(2))
    assert np.array_equal(np.sort(whole, 1), np.tile(np.arange(5), (3, 1)))


def test_a_ratio_of_plain_means_has_the_textbook_error():
    rng = np.random.default_rng(3)
    top, bottom = rng.normal(5, 1, 400), rng.normal(4, 1, 400)
    batches = draw(400, 8, 2000, rng)
    gains = top[batches], bottom[batches]
    values = gains[0].mean(1), gains[1].mean(1)
    spread = log_ratio_spread(batches, values, gains, np.zeros(400), 0.95, rng)
    linear = top / top.mean() - bottom / bottom.mean()
    wanted = linear.std(ddof=1) / np.sqrt(400)
    assert spread.tasks == pytest.approx(wanted, rel=1e-3)
    ratio = top.mean() / bottom.mean()
    low, high = np.exp(np.log(ratio) + np.array([-1.96, 1.96]) * np.hypot(wanted, spread.draws))
    assert spread.interval == pytest.approx((low, high), abs=5e-3)


def test_few_tasks_widen_by_students_factor():
    rng = np.random.default_rng(6)
    widths = []
    for _ in range(40):
        top, bottom = rng.normal(50, 1, 9), rng.normal(40, 1, 9)
        batches = draw(9, 3, 900, rng)
        gains = top[batches], bottom[batches]
        values = gains[0].mean(1), gains[1].mean(1)
        spread = log_ratio_spread(batches, values, gains, np.zeros(9), 0.95, rng)
        wanted = np.hypot(2.306 * spread.tasks, 1.96 * spread.draws)  # t of 8 degrees of freedom
        widths.append(np.log(spread.interval[1] / spread.interval[0]) / (2 * wanted))
    assert np.mean(widths) == pytest.approx(1, abs=0.03)


def test_a_direct_bootstrap_has_the_same_width():
    """Batches drawn anew from resampled tasks, none twice in a batch; right for small batches."""
    from advlib import diagnostics as dx
    from tests.diagnostics.clusters import Kinds, sample

    rng = np.random.default_rng(5)
    kinds = Kinds((0.2, 0.5, 0.8), spread=0.05, binary=True)
    rewards, features = sample(kinds, 300, 4, rng)
    options = {"temperature": 0.5, "batch_size": 6}
    found = dx.effective_batch(rewards, features, **options)
    logs = []
    for number in range(120):
        times = np.bincount(rng.integers(300, size=300), minlength=300)
        present = np.repeat(np.arange(300), times)
        decks = [rng.permutation(present) for _ in range(6)]
        batches = np.concatenate([deck[: len(deck) // 6 * 6].reshape(-1, 6) for deck in decks])
        batches = batches[[len(set(batch)) == 6 for batch in batches.tolist()]]
        logs.append(_log_ratio(rewards, features, batches, number))
    spread = np.std(logs, ddof=1)
    assert spread == pytest.approx(np.hypot(found.log_error, np.std(logs) * 0.2), rel=0.25)


def _log_ratio(rewards, features, batches, number):
    from advlib.diagnostics._features import cosines, unit_rows
    from advlib.diagnostics._score import score
    from advlib.diagnostics._tasks import read_tasks

    tasks = read_tasks(rewards, 2)
    units = unit_rows(features, len(rewards))
    assert cosines(units, batches[:1]).shape == (1, 6, 6)
    rng = np.random.default_rng(number)
    plain, kernel = score(tasks, units, batches, [np.inf, 0.5], "rao_blackwell", rng)
    sigma2 = tasks.variances[batches].mean()
    return np.log((sigma2 + plain.errors.mean()) / (sigma2 + kernel.errors.mean()))
