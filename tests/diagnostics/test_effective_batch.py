"""The effective batch: against closed forms, plain loops, laws, and a real table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from advlib import diagnostics as dx
from advlib import text
from tests.diagnostics.clusters import Kinds, sample, truth

METHODS = ("rao_blackwell", "resampling", "residual")
BINARY = Kinds((0.2, 0.5, 0.8), spread=0.05, binary=True)
NUMBERS = Kinds((-1.0, 0.0, 2.0, 5.0), spread=1.0, noise=4.0)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "decision.json").read_text())


def table(seed=0, tasks=40, rollouts=4, kinds=BINARY):
    return sample(kinds, tasks, rollouts, np.random.default_rng(seed))


@pytest.mark.parametrize("case", VECTORS["ratio"], ids=lambda case: case["id"])
def test_ratio_vectors(case):
    got = dx.effective_batch_ratio(case["sigma2"], case["mse_loo"], case["mse_kernel"])
    assert got == pytest.approx(case["expected"], abs=2e-6)
    assert abs(got - 0.9762) < 4e-4  # what the source prints, from inputs that were not rounded


POSITIVE = st.floats(1e-3, 1e3)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_ratio_laws(sigma2, mse_loo, mse_kernel):
    ratio = dx.effective_batch_ratio(sigma2, mse_loo, mse_kernel)
    assert dx.effective_batch_ratio(sigma2, mse_loo, mse_loo) == 1
    assert ratio * dx.effective_batch_ratio(sigma2, mse_kernel, mse_loo) == pytest.approx(1)
    assert dx.effective_batch_ratio(sigma2, mse_loo, mse_kernel * 1.01) < ratio
    assert math.isnan(dx.effective_batch_ratio(sigma2, mse_loo, -sigma2))


def loop(rewards, features, temperature, method, found, rng_seed):
    """The same estimate with loops, from the formulas, on the batches of the seed."""
    from advlib.diagnostics._score import draw

    rng = np.random.default_rng(rng_seed)
    batches = draw(len(rewards), found.batch_size, found.num_resamples, rng)
    cells = [[r for r in row if not np.isnan(r)] for row in rewards]
    picks = None
    if method != "rao_blackwell":
        picks = rng.integers(np.array([len(row) for row in cells])[batches])
    units = [x / np.linalg.norm(x) if np.any(x) else x for x in np.asarray(features)]
    sigma2 = np.mean([np.var(row, ddof=1) for row in cells])
    errors, neighbours = {math.inf: [], temperature: []}, []
    for number, batch in enumerate(batches):
        for kernel, collected in errors.items():
            for i, task in enumerate(batch):
                weights = np.array(
                    [
                        0.0 if j == i else math.exp(units[task] @ units[other] / kernel)
                        for j, other in enumerate(batch)
                    ]
                )
                p = weights / weights.sum()
                rows = [cells[other] for other in batch]
                if kernel == temperature:
                    neighbours.append(1 / sum(p**2))
                if method == "rao_blackwell":
                    baseline = sum(p[j] * np.mean(row) for j, row in enumerate(rows))
                    extra = sum(
                        p[j] ** 2 * np.var(row, ddof=1) * (1 - 1 / len(row))
                        for j, row in enumerate(rows)
                    )
                    floor = np.var(rows[i], ddof=1) / len(rows[i])
                    collected.append((baseline - np.mean(rows[i])) ** 2 - floor + extra)
                    continue
                seen = [row[picks[number, j]] for j, row in enumerate(rows)]
                baseline = p @ seen
                if method == "residual":
                    collected.append((seen[i] - baseline) ** 2 - sigma2)
                    continue
                rest = [r for g, r in enumerate(rows[i]) if g != picks[number, i]]
                floor = np.var(rows[i], ddof=1) / (len(rows[i]) - 1)
                collected.append((np.mean(rest) - baseline) ** 2 - floor)
    return sigma2, np.mean(errors[math.inf]), np.mean(errors[temperature]), np.mean(neighbours)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_plain_loops(method, sparse):
    rng = np.random.default_rng(3)
    rewards = rng.normal(5, 2, (13, 5))
    rewards[rng.random(rewards.shape) < 0.3] = np.nan
    rewards[:, :2] = rng.normal(5, 2, (13, 2))
    features = rng.random((13, 6)) * (rng.random((13, 6)) < 0.5)
    features[4] = 0
    given = scipy.sparse.csr_matrix(features) if sparse else features
    found = dx.effective_batch(
        rewards, given, temperature=0.3, batch_size=5, num_resamples=7, seed=11, method=method
    )
    wanted = loop(rewards, features, 0.3, method, found, 11)
    got = (found.sigma2, found.mse_loo, found.mse_kernel, found.ess)
    np.testing.assert_allclose(got, wanted, rtol=1e-9)
    assert found.ratio == pytest.approx(dx.effective_batch_ratio(*wanted[:3]))
    assert found.num_rollouts == int((~np.isnan(rewards)).sum())


def test_closed_form_is_that_of_many_draws():
    """The truth that the estimates are judged by, checked without them."""
    for kinds, temperature in ((BINARY, 0.5), (NUMBERS, 0.7)):
        wanted = truth(kinds, 6, temperature)
        rng = np.random.default_rng(1)
        rewards, features = sample(kinds, 6 * 20_000, 40, rng)
        means = rewards.mean(1).reshape(-1, 6)
        once = rewards[:, 0].reshape(-1, 6)
        kind = features.argmax(1).reshape(-1, 6)
        weights = np.where(kind[:, :, None] == kind[:, None], math.exp(1 / temperature), 1.0)
        weights[:, np.arange(6), np.arange(6)] = 0
        baseline = np.einsum("cij,cj->ci", weights, once) / weights.sum(2)
        error = np.square(baseline - means).mean() - wanted.sigma2 / 40
        assert error == pytest.approx(wanted.mse_kernel, rel=0.02)
        assert rewards.var(1, ddof=1).mean() == pytest.approx(wanted.sigma2, rel=0.01)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kinds", [BINARY, NUMBERS], ids=["binary", "numbers"])
def test_unbiased_and_covering(kinds, method):
    """500 tables: means within two standard errors of the truth, intervals that hold it."""
    wanted = truth(kinds, 8, 0.5)
    rows = []
    for number in range(500):
        rewards, features = table(number, tasks=96, rollouts=3, kinds=kinds)
        found = dx.effective_batch(
            rewards,
            features,
            temperature=0.5,
            batch_size=8,
            num_resamples=96,
            seed=number,
            method=method,
        )
        low, high = found.interval
        terms = found.sigma2, found.mse_loo, found.mse_kernel, found.ratio
        rows.append((*terms, low <= wanted.ratio <= high))
    seen = np.array(rows, float)
    error = seen[:, :4].std(0, ddof=1) / math.sqrt(len(seen))
    off = (seen[:, :4].mean(0) - [*wanted, wanted.ratio]) / error
    assert np.abs(off).max() < 2, off
    assert 0.93 <= seen[:, 4].mean() <= 0.97


def test_stated_error_is_the_spread_between_tables():
    found = [
        dx.effective_batch(*table(seed, 96, 3), temperature=0.5, batch_size=8, num_resamples=96)
        for seed in range(150)
    ]
    spread = np.std([math.log(one.ratio) for one in found], ddof=1)
    stated = np.mean([math.hypot(one.log_error, one.draw_error) for one in found])
    assert stated == pytest.approx(spread, rel=0.15)


def test_more_draws_remove_the_draw_error():
    rewards, features = table(0, 96, 3)
    few = [dx.effective_batch(rewards, features, num_resamples=50, seed=s) for s in range(60)]
    many = dx.effective_batch(rewards, features, num_resamples=5000)
    spread = np.std([math.log(one.ratio) for one in few], ddof=1)
    assert spread <= 1.2 * np.mean([one.draw_error for one in few])
    assert many.draw_error == pytest.approx(few[0].draw_error / 10, rel=0.3)
    assert np.mean([one.ratio for one in few]) == pytest.approx(many.ratio, abs=0.01)


def test_identical_prompts_are_the_mean_of_the_others():
    rewards, _ = table(2)
    for features in (np.ones((40, 3)), np.zeros((40, 3))):
        for temperature in (1e-4, 0.1, math.inf):
            found = dx.effective_batch(
                rewards, features, temperature=temperature, num_resamples=20, batch_size=16
            )
            assert found.ratio == pytest.approx(1, abs=1e-12)
            assert found.ess == pytest.approx(15)
            assert found.interval == pytest.approx((1, 1), abs=1e-9)


def test_infinite_temperature_is_the_mean_of_the_others():
    rewards, features = table(3)
    found = dx.effective_batch(rewards, features, temperature=math.inf, num_resamples=20)
    assert found.ratio == 1.0
    assert found.mse_kernel == found.mse_loo


def test_low_temperature_is_the_nearest_neighbours():
    found = dx.effective_batch(*table(4), temperature=1e-4, num_resamples=50, batch_size=2)
    assert found.ratio == pytest.approx(1)  # one neighbour: every kernel is the same
    nearest = dx.effective_batch(*table(4), temperature=1e-4, num_resamples=50, batch_size=32)
    assert 3 < nearest.ess < 15
    assert all(math.isfinite(value) for value in nearest.interval)


@pytest.mark.parametrize("method", METHODS)
def test_shift_and_scale_of_rewards(method):
    rewards, features = table(5, kinds=NUMBERS)
    options = {"num_resamples": 30, "method": method}
    base = dx.effective_batch(rewards, features, **options)
    moved = dx.effective_batch(10 * rewards + 1e6, features, **options)
    assert moved.ratio == pytest.approx(base.ratio, rel=1e-7)
    assert moved.interval == pytest.approx(base.interval, rel=1e-6)
    assert moved.mse_kernel == pytest.approx(100 * base.mse_kernel, rel=1e-6)


def test_order_of_rollouts_and_length_of_features_do_not_matter():
    rewards, features = table(6)
    scale = np.random.default_rng(0).uniform(0.1, 9, (40, 1))
    base = dx.effective_batch(rewards, features, num_resamples=30)
    other = dx.effective_batch(rewards[:, ::-1], features * scale, num_resamples=30)
    assert other.ratio == pytest.approx(base.ratio)
    assert other.interval == pytest.approx(base.interval)


def test_kinds_of_input_agree():
    rewards, features = table(7)
    base = dx.effective_batch(rewards, features, num_resamples=30)
    ragged = [row.tolist() for row in rewards]
    ragged[3] = [*ragged[3], None, math.nan]
    for form in (rewards.tolist(), ragged, jnp.asarray(rewards, jnp.float32), rewards == 1):
        assert dx.effective_batch(form, features, num_resamples=30) == base
    for form in (scipy.sparse.csr_matrix, scipy.sparse.coo_array, lambda x: jnp.asarray(x)):
        seen = dx.effective_batch(rewards, form(features), num_resamples=30)
        assert seen.ratio == pytest.approx(base.ratio)
    assert dx.effective_batch(rewards, features, num_resamples=30, seed=1) != base


def test_inputs_are_not_changed():
    rewards, features = table(8)
    rewards[0, 1] = np.nan
    sparse = scipy.sparse.csr_matrix(features * 3.0)
    before = rewards.copy(), sparse.copy()
    dx.effective_batch(rewards, sparse, num_resamples=5)
    np.testing.assert_array_equal(rewards, before[0])
    assert (sparse != before[1]).nnz == 0


def test_unmeasured_cells_leave_everything():
    """A task without two rollouts is as if it were not there, and says so."""
    rewards, features = table(9)
    rewards[5] = [1e30, np.nan, np.nan, np.nan]
    rewards[7] = np.nan
    keep = [i for i in range(40) if i not in (5, 7)]
    found = dx.effective_batch(rewards, features, num_resamples=30)
    assert (found.num_tasks, found.num_left_out) == (38, 2)
    plain = dx.effective_batch(rewards[keep], features[keep], num_resamples=30)
    assert found._replace(num_left_out=0) == plain
    single = dx.effective_batch(rewards, features, num_resamples=30, method="residual")
    assert (single.num_tasks, single.num_left_out) == (39, 1)
    assert single.mse_loo > 1e50  # there the one reward is a measurement


def test_one_rollout_a_task_is_enough_for_the_residual():
    rewards, features = table(10, rollouts=1)
    found = dx.effective_batch(rewards, features, num_resamples=50, method="residual")
    assert math.isfinite(found.ratio)
    assert math.isnan(found.sigma2)
    assert math.isnan(found.mse_loo)
    assert found.interval[0] < found.ratio < found.interval[1]
    with pytest.raises(ValueError, match='0 of 40; got 32; method="residual" needs one'):
        dx.effective_batch(rewards, features)


def test_temperatures_share_their_batches():
    rewards, features = table(11)
    temperatures = [0.05, 0.3, math.inf]
    swept = dx.effective_batch_by_temperature(
        rewards, features, temperatures=temperatures, num_resamples=30
    )
    for temperature, one in zip(temperatures, swept, strict=True):
        assert one == dx.effective_batch(
            rewards, features, temperature=temperature, num_resamples=30
        )
    assert len({one.mse_loo for one in swept}) == 1
    neighbours = [one.ess for one in swept]
    assert neighbours == sorted(neighbours)
    for one in swept:
        assert 1 <= one.ess_deciles[0] <= one.ess <= one.ess_deciles[-1] <= 31 + 1e-9
        assert len(one.ess_deciles) == 11


def test_errors_may_be_negative():
    """Not clipped: two tasks alike by chance have a baseline better than perfect."""
    rewards = np.array([[0.0, 1.0], [1.0, 0.0]])
    found = dx.effective_batch(rewards, np.eye(2), batch_size=2, num_resamples=4)
    assert found.mse_loo == pytest.approx(0 - 0.25 + 0.25)
    lower = dx.effective_batch(
        [[0.0, 1.0, 0.0, 1.0]] * 4, np.eye(4), batch_size=4, num_resamples=4, temperature=1.0
    )
    assert lower.mse_kernel == pytest.approx(-1 / 12 + (1 / 3) * (1 / 3) * 0.75)
    constant = dx.effective_batch(np.ones((4, 2)), np.eye(4), batch_size=4, num_resamples=4)
    assert math.isnan(constant.ratio)
    assert all(math.isnan(bound) for bound in constant.interval)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(METHODS), st.integers(2, 12))
def test_any_table_gives_an_interval_around_its_ratio(seed, method, size):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(12, 3))
    rewards[:, 2][rng.random(12) < 0.5] = np.nan
    found = dx.effective_batch(
        rewards, rng.normal(size=(12, 2)), batch_size=size, num_resamples=20, method=method
    )
    if math.isfinite(found.interval[0]):
        assert found.interval[0] <= found.ratio * 1.2
        assert found.interval[1] >= found.ratio / 1.2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rewards": np.zeros(40)}, ValueError, r"\(tasks, rollouts\).*got shape \(40,\)"),
        ({"rewards": [[1.0], 2.0]}, ValueError, "one sequence of rewards a task"),
        ({"rewards": [["a", "b"]] * 40}, TypeError, "rewards must be numbers"),
        ({"rewards": np.full((40, 2), np.inf)}, ValueError, "rewards must be finite.*rows 0, 1"),
        ({"rewards": np.full((40, 2), np.nan)}, ValueError, "0 of 40; got 32"),
        ({"features": np.eye(39)}, ValueError, r"shape \(40, D\).*got \(39, 39\)"),
        ({"features": np.full((40, 2), np.nan)}, ValueError, "features must be finite"),
        ({"features": np.full((40, 2), "a")}, TypeError, "features must be numbers"),
        ({"temperature": 0.0}, ValueError, "temperature must be at least 0.0001"),
        ({"temperature": math.nan}, ValueError, "temperature"),
        ({"batch_size": 41}, ValueError, "at most the number of tasks.*40 of 40; got 41"),
        ({"batch_size": 1}, ValueError, "batch_size must be at least 2"),
        ({"batch_size": 8.5}, TypeError, "batch_size must be an integer; got float"),
        ({"num_resamples": 1}, ValueError, "num_resamples must be at least 2"),
        ({"method": "jackknife"}, ValueError, "method must be one of"),
        ({"confidence": 95}, ValueError, "confidence"),
    ],
)
def test_bad_input_is_named(change, error, message):
    rewards, features = table()
    options = {"rewards": rewards, "features": features, **change}
    with pytest.raises(error, match=message):
        dx.effective_batch(options.pop("rewards"), options.pop("features"), **options)
    with pytest.raises(ValueError, match="at least one"):
        dx.effective_batch_by_temperature(rewards, features, temperatures=[])


def test_graded_gsm8k_solutions(gsm8k):
    """1,319 questions, four graded solutions each: the kernel does not help there."""

    def lines(name):
        with (gsm8k / name).open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    rows = lines("example_model_solutions.jsonl")
    rewards = [
        [float(part["is_correct"]) for part in row.values() if isinstance(part, dict)]
        for row in rows
    ]
    assert np.shape(rewards) == (1319, 4)
    features = text.fit_tfidf([row["question"] for row in lines("train.jsonl")]).transform(
        [row["question"] for row in rows]
    )
    found = dx.effective_batch(rewards, features)
    assert found.sigma2 == pytest.approx(0.1535, abs=0.002)
    assert found.mse_loo == pytest.approx(0.0896, abs=0.002)
    assert found.mse_kernel == pytest.approx(0.0930, abs=0.002)
    assert found.ratio == pytest.approx(0.986, abs=0.002)
    assert found.interval[1] < 1
    for method in ("resampling", "residual"):
        other = dx.effective_batch(rewards, features, method=method)
        assert other.ratio == pytest.approx(found.ratio, abs=0.005)
