"""What a kernel baseline is: its exact properties and its limits, on every path to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

import advlib
from advlib.estimators import _kernel_host
from tests import reference

Form = Callable[[np.ndarray], Any]

forms = pytest.mark.parametrize("form", [np.array, csr_matrix], ids=["dense", "sparse"])
TEMPERATURES = [1e-4, 0.005, 0.02, 0.1, 0.5, 5.0, np.inf]
temperatures = pytest.mark.parametrize("temperature", TEMPERATURES)


def draw(seed: int, size: int = 40, words: int = 30, distinct: int | None = None) -> Any:
    """Sparse, not negative rows with a few of zeros, rewards on a grid, a mask, weights."""
    rng = np.random.default_rng(seed)
    rows = rng.random((distinct or size, words)) * (rng.random((distinct or size, words)) < 0.2)
    rows[rng.random(len(rows)) < 0.05] = 0
    if distinct:
        rows = rows[rng.integers(distinct, size=size)]
    rewards = rng.choice([0.0, 1.0, -0.1, 0.5], size).astype(np.float32)
    return rows, rewards, rng.random(size) < 0.8, rng.choice([0.0, 0.5, 1.0, 2.0], size)


def cosines(rows: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(norm == 0, 1, norm)[:, None]
    return unit @ unit.T


def others(matrix: np.ndarray) -> np.ndarray:
    """Off-diagonal entries, (B, B - 1)."""
    size = len(matrix)
    return matrix[~np.eye(size, dtype=bool)].reshape(size, size - 1)


def leave_one_out(rewards: np.ndarray) -> np.ndarray:
    r = rewards.astype(np.float64)
    return (r.sum() - r) / (len(r) - 1)


def close(got: Any, wanted: Any, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=0, atol=atol)


@forms
@temperatures
@pytest.mark.parametrize("distinct", [None, 9])
def test_equals_the_reference(form: Form, temperature: float, distinct: int | None) -> None:
    for seed in range(2):
        rows, r, where, weights = draw(seed, distinct=distinct)
        for options in ({}, {"where": where}, {"where": where, "weights": weights}):
            options = {**options, "temperature": temperature}
            atol = max(2e-6, 5e-8 / temperature) if form is np.array else 2e-6
            close(
                advlib.kernel_baseline(form(rows), r, **options),
                reference.kernel_baseline(rows, r, **options),
                atol,
            )
            close(advlib.gs1(form(rows), r, **options), reference.gs1(rows, r, **options), atol)


@forms
@temperatures
def test_own_reward_stays_out_to_the_last_bit(form: Form, temperature: float) -> None:
    rows, r, where, _ = draw(3, size=24)
    where[:4] = [True, False, True, True]
    before = np.asarray(advlib.kernel_baseline(form(rows), r, where=where, temperature=temperature))
    for i, changed in itertools.product((0, 1, 2, 3, 11, 23), (7.0, -1e6)):
        other = r.copy()
        other[i] = changed
        after = np.asarray(
            advlib.kernel_baseline(form(rows), other, where=where, temperature=temperature)
        )
        assert after[i].tobytes() == before[i].tobytes()


def test_own_reward_may_be_anything_in_a_trace() -> None:
    rows, r, _, _ = draw(3, size=24)
    compiled = jax.jit(lambda r: advlib.kernel_baseline(rows, r))
    before = np.asarray(compiled(r))
    for i, changed in itertools.product((0, 5), (np.nan, np.inf)):
        after = np.asarray(compiled(np.where(np.arange(24) == i, changed, r).astype(np.float32)))
        assert after[i].tobytes() == before[i].tobytes()
        assert not np.isfinite(np.delete(after, i)).any()


@forms
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), temperature=st.sampled_from(TEMPERATURES))
def test_shift_linearity_permutation_and_convexity(
    form: Form, seed: int, temperature: float
) -> None:
    rows, r, where, weights = draw(seed, size=16)
    other = np.random.default_rng(seed + 1).choice([0.0, 0.25, 2.0], 16).astype(np.float32)
    options = {"where": where, "weights": weights, "temperature": temperature}
    atol = 1e-5

    def baseline(rewards: np.ndarray) -> np.ndarray:
        return np.asarray(advlib.kernel_baseline(form(rows), rewards, **options, fallback="raw"))

    votes = where & (weights > 0)
    b = baseline(r)
    has = np.array([votes.sum() - votes[i] > 0 for i in range(16)])
    close(baseline(r + 8.0), b + 8.0 * has, atol)
    close(baseline(2.0 * r + 0.5 * other), 2.0 * b + 0.5 * baseline(other), atol)
    order = np.random.default_rng(seed).permutation(16)
    moved = advlib.kernel_baseline(
        form(rows[order]),
        r[order],
        where=where[order],
        weights=weights[order],
        temperature=temperature,
        fallback="raw",
    )
    close(moved, b[order], atol)
    for i in np.flatnonzero(has):
        theirs = r[votes & (np.arange(16) != i)]
        assert theirs.min() - 1e-6 <= b[i] <= theirs.max() + 1e-6


@forms
@temperatures
@pytest.mark.parametrize("constant", [0.1, 0.97, -1 / 3, 1e8])
def test_constant_rewards_give_exact_zeros(form: Form, temperature: float, constant: float) -> None:
    rows, _, where, weights = draw(4)
    r = np.full(40, constant, np.float32)
    for options in ({}, {"where": where, "weights": weights}):
        a = advlib.gs1(form(rows), r, temperature=temperature, **options)
        assert np.all(np.asarray(a) == 0.0)


@forms
@temperatures
def test_identical_prompts_give_leave_one_out(form: Form, temperature: float) -> None:
    _, r, _, _ = draw(5)
    for row in (np.arange(6.0), np.zeros(6)):
        rows = np.tile(row, (40, 1))
        close(advlib.kernel_baseline(form(rows), r, temperature=temperature), leave_one_out(r))
        close(
            advlib.gs1(form(rows), r, temperature=temperature),
            advlib.batch_leave_one_out(r),
        )
        close(advlib.gs1(form(rows), r, temperature=temperature), 40 / 39 * (r - r.mean()))


@forms
@temperatures
def test_distance_from_leave_one_out_is_bounded(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(6)
    b = np.asarray(advlib.kernel_baseline(form(rows), r, temperature=temperature))
    s = others(cosines(rows))
    spread = np.array([np.ptp(np.delete(r, i)) for i in range(40)])
    bound = np.ptp(s, axis=1) * spread / (4 * temperature)
    assert np.all(np.abs(b - leave_one_out(r)) <= bound + 1e-6)
    if temperature == np.inf:
        close(b, leave_one_out(r))


@forms
@pytest.mark.parametrize("temperature", [1e-3, 0.02, 0.1])
def test_low_temperature_is_the_nearest_neighbours(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(7, size=30, distinct=14)
    b = np.asarray(advlib.kernel_baseline(form(rows), r, temperature=temperature))
    for i, s in enumerate(cosines(rows)):
        theirs = np.delete(np.arange(30), i)
        nearest = theirs[s[theirs] > s[theirs].max() - 1e-9]
        rest = np.setdiff1d(theirs, nearest)
        gap = s[nearest].min() - s[rest].max(initial=-np.inf)
        spread = np.ptp(r[theirs])
        error = spread * len(rest) / len(nearest) * np.exp(-gap / temperature)
        assert abs(b[i] - r[nearest].mean()) <= error + 2e-5 * spread


@forms
def test_low_temperature_on_groups_is_rloo(form: Form) -> None:
    rng = np.random.default_rng(8)
    group = rng.permutation(np.repeat(np.arange(6), [2, 3, 2, 8, 4, 5]))
    rows = np.eye(6)[group] + 0.1
    r = rng.choice([0.0, 1.0, 0.25], 24).astype(np.float32)
    close(advlib.gs1(form(rows), r, temperature=1e-3), advlib.leave_one_out(r, group), 1e-6)


@forms
def test_groups_of_equal_prompts_interpolate(form: Form) -> None:
    """In between, a closed form: the group's mean and the others', weighed by e^(1/T), e^(ρ/T)."""
    groups, each, temperature = 4, 8, 0.1
    group = np.repeat(np.arange(groups), each)
    rows = np.eye(groups)[group] * 3 + 0.5
    rho = cosines(rows)[0, -1]
    r = np.random.default_rng(9).random(groups * each).astype(np.float32)
    inside = r.reshape(groups, each).sum(1)[group]
    own, rest = (each - 1) * np.exp(1 / temperature), (24) * np.exp(rho / temperature)
    mean_in, mean_out = (inside - r) / (each - 1), (r.sum() - inside) / 24
    wanted = (own * mean_in + rest * mean_out) / (own + rest)
    close(advlib.kernel_baseline(form(rows), r, temperature=temperature), wanted)


@forms
@temperatures
def test_two_samples_swap_their_rewards(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(10, size=2)
    r = np.array([0.25, 0.75], np.float32)
    close(advlib.kernel_baseline(form(rows), r, temperature=temperature), r[::-1], 0)


@forms
@temperatures
def test_a_row_of_zeros_gets_the_mean_of_the_others(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(11)
    rows[[0, 7]] = 0
    b = np.asarray(advlib.kernel_baseline(form(rows), r, temperature=temperature))
    close(b[[0, 7]], leave_one_out(r)[[0, 7]])


@temperatures
def test_row_constants_and_common_scale_cancel(temperature: float) -> None:
    rows, r, _, _ = draw(12)
    s, r = cosines(rows), r.astype(np.float64)
    plain = _kernel_host.few_means(s.copy(), r, None, temperature)
    moved = _kernel_host.few_means(s + np.linspace(-3, 3, 40)[:, None], r, None, temperature)
    close(moved.mean, plain.mean, 1e-9)
    if temperature < np.inf:
        scaled = _kernel_host.few_means(7.0 * s, r, None, 7.0 * temperature)
        close(scaled.mean, plain.mean, 1e-9)


@forms
@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_degree_weighted_sum_is_zero(form: Form, temperature: float) -> None:
    rows, r, _, weights = draw(13)
    k = np.exp(cosines(rows) / temperature)
    np.fill_diagonal(k, 0)
    a = np.asarray(advlib.gs1(form(rows), r, temperature=temperature), np.float64)
    d = k.sum(1)
    assert abs((d * a).sum()) <= 1e-6 * d.sum()
    a = advlib.gs1(form(rows), r, temperature=temperature, weights=weights)
    assert abs((weights * (k @ weights) * np.asarray(a)).sum()) <= 1e-6 * d.sum()


@forms
@temperatures
def test_masking_is_deleting(form: Form, temperature: float) -> None:
    rows, r, where, weights = draw(14)
    masked = advlib.gs1(form(rows), r, where=where, weights=weights, temperature=temperature)
    short = advlib.gs1(form(rows[where]), r[where], weights=weights[where], temperature=temperature)
    assert np.all(np.asarray(masked)[~where] == 0)
    close(np.asarray(masked)[where], short, 2e-6 if form is csr_matrix else 3e-5)
    # A sample without weight for others still has a baseline of its own.
    light = advlib.gs1(form(rows), r, weights=where.astype(float), temperature=temperature)
    close(np.where(where, light, 0), masked if weights is None else np.where(where, light, 0))


@forms
@temperatures
def test_weights_are_repetition(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(15, size=20)
    counts = np.random.default_rng(15).integers(0, 4, 20)
    b = np.asarray(advlib.kernel_baseline(form(rows), r, weights=counts, temperature=temperature))
    for i in (0, 1, 7, 19):
        again = np.repeat(np.delete(np.arange(20), i), np.delete(counts, i))
        index = np.append(again, i)
        repeated = advlib.kernel_baseline(form(rows[index]), r[index], temperature=temperature)
        close(np.asarray(repeated)[-1], b[i], 2e-6 if form is csr_matrix else 3e-5)


@forms
def test_tiny_weights_are_not_lost(form: Form) -> None:
    """The nearest neighbour weighs 1e-30, and is still e^200 times more than all others."""
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    r = np.array([0.0, 1.0, 0.0, 0.5], np.float32)
    b = advlib.kernel_baseline(form(rows), r, temperature=0.005, weights=[1, 1e-30, 1, 1])
    close(np.asarray(b)[0], 1.0)


@forms
@temperatures
def test_self_inclusion_would_shrink(form: Form, temperature: float) -> None:
    rows, r, _, _ = draw(16)
    s = cosines(rows)
    k = np.exp((s - s.max(1, keepdims=True)) / temperature)
    inclusive = r - (k @ r) / k.sum(1)
    share = np.diag(k) / k.sum(1)
    keep = share < 0.999
    a = np.asarray(advlib.gs1(form(rows), r, temperature=temperature))
    close(((1 - share) * a)[keep], inclusive[keep], 3e-5)


def test_group_mean_is_leave_one_out_shrunk() -> None:
    _, r, _, _ = draw(17, size=8)
    close(advlib.batch_mean(r), 7 / 8 * np.asarray(advlib.batch_leave_one_out(r)))


@forms
def test_policy_gradient_is_unbiased_exactly(form: Form) -> None:
    """All outcomes of four prompts with two answers each: the expectation is the gradient of J."""
    rng = np.random.default_rng(18)
    rows = rng.random((4, 3))
    p, rewards = rng.uniform(0.1, 0.9, 4), rng.normal(size=(4, 2))
    estimate = np.zeros(4)
    with jax.enable_x64(True):
        for answers in itertools.product((0, 1), repeat=4):
            chosen = np.array(answers)
            chance = np.where(chosen == 1, p, 1 - p)
            score = chosen - p  # of a logit
            r = rewards[np.arange(4), chosen]
            a = np.asarray(advlib.gs1(form(rows), r, temperature=0.3))
            assert a.dtype == np.float64
            estimate += chance.prod() * score * a / 4
    wanted = p * (1 - p) * (rewards[:, 1] - rewards[:, 0]) / 4
    close(estimate, wanted, 1e-14)


@forms
def test_nobody_to_compare_with(form: Form) -> None:
    rows, r = np.array([[1.0, 2.0]]), np.array([0.7], np.float32)
    for function, fallback, wanted in [
        (advlib.gs1, "zero", 0.0),
        (advlib.gs1, "raw", 0.7),
        (advlib.kernel_baseline, "zero", 0.7),
        (advlib.kernel_baseline, "raw", 0.0),
    ]:
        with pytest.warns(advlib.AdvantageWarning, match="nothing to compare with"):
            close(function(form(rows), r, fallback=fallback), [wanted])
        pair, rewards = np.repeat(rows, 2, axis=0), np.array([0.7, np.nan], np.float32)
        with pytest.warns(advlib.AdvantageWarning, match="1 of 2 samples are valid"):
            got = function(form(pair), rewards, where=[True, False], fallback=fallback)
        # The masked sample is told what its neighbour got; it has no advantage.
        close(got, [wanted, 0.7 if function is advlib.kernel_baseline else 0.0])
        with pytest.warns(advlib.AdvantageWarning, match="0 of 2 samples are valid"):
            got = function(form(pair), rewards, where=[False, False], fallback=fallback)
        close(got, [0.0, 0.0])
        with pytest.warns(advlib.AdvantageWarning, match="0 of these have any weight"):
            got = function(form(pair), [0.7, 0.7], weights=[0, 0], fallback=fallback)
        close(got, [wanted, wanted])


@forms
def test_poison_in_masked_rows(form: Form) -> None:
    rows, r, where, _ = draw(19)
    clean, zeros = rows.copy(), np.where(where, r, 0)
    clean[~where] = 0
    wanted = np.asarray(advlib.gs1(form(clean), zeros, where=where))
    for poison in (np.nan, np.inf, -np.inf):
        dirty = np.where(where[:, None], rows, poison)
        got = advlib.gs1(form(dirty), np.where(where, r, poison), where=where)
        assert np.asarray(got).tobytes() == wanted.tobytes()


def test_gradients_are_finite_and_right() -> None:
    rows, r, where, weights = draw(20, size=24)
    rows[3] = rows[2]
    rows = rows.astype(np.float32)
    dirty_rows = np.where(where[:, None], rows, np.nan).astype(np.float32)
    dirty = np.where(where, r, np.nan).astype(np.float32)
    weights = weights.astype(np.float32)

    def loss(x: Any, r: Any, w: Any, t: Any) -> Any:
        a = advlib.gs1(x, r, temperature=t, where=jnp.asarray(where), weights=w)
        return jnp.sum(a * jnp.cos(jnp.arange(24, dtype=a.dtype)))

    slope = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    clean_rows = np.where(where[:, None], rows, 0)
    clean = slope(clean_rows, np.where(where, r, 0), weights, 0.3)
    poisoned = slope(dirty_rows, dirty, weights, 0.3)
    for a, b in zip(clean, poisoned, strict=True):
        assert np.isfinite(a).all()
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with jax.enable_x64(True):
        wide = (clean_rows, np.where(where, r, 0), weights)
        x, r64, w = (jnp.asarray(v, jnp.float64) for v in wide)
        exact = jax.grad(lambda *args: loss(*args, 0.3), argnums=(0, 1, 2))(x, r64, w)
        for which in (0, 1, 2):
            values = [x, r64, w]
            step = np.zeros(values[which].shape)
            step.flat[-1] = 1e-6
            up, down = list(values), list(values)
            up[which], down[which] = values[which] + step, values[which] - step
            numeric = (loss(*up, 0.3) - loss(*down, 0.3)) / 2e-6
            close(np.asarray(exact[which]).flat[-1], numeric, 1e-6)


@temperatures
def test_gradients_are_finite_at_every_temperature(temperature: float) -> None:
    rows, r, _, _ = draw(21, size=16)
    rows[:3] = 0
    rows[3:6] = rows[3]

    def loss(x: Any, r: Any) -> Any:
        return jnp.sum(advlib.gs1(x, r, temperature=temperature) ** 2)

    for value in jax.grad(loss, argnums=(0, 1))(jnp.asarray(rows, jnp.float32), jnp.asarray(r)):
        assert np.isfinite(value).all()


def test_large_rewards_keep_small_differences() -> None:
    rows, r, _, _ = draw(22)
    r = np.float32(1e6) + (r * 16).astype(np.float32)
    wanted = reference.gs1(rows, r)
    for form in (np.array, csr_matrix):
        close(advlib.gs1(form(rows), r), wanted, 2e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@forms
def test_rows_are_normalised_whatever_their_length(form: Form, scale: float) -> None:
    rows, r, _, _ = draw(23)
    lengths = np.where(np.arange(40) % 2, scale, 1.0)[:, None]
    close(advlib.gs1(form(rows * lengths), r), advlib.gs1(form(rows), r), 2e-6)


@pytest.mark.parametrize("kind", ["list", "numpy", "jax", "csr_matrix", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_], ids=str)
def test_every_form_of_features(kind: str, dtype: Any) -> None:
    rows, r, _, _ = draw(24)
    rows = (rows > 0.5).astype(dtype)
    make: dict[str, Any] = {
        "list": np.ndarray.tolist,
        "numpy": np.array,
        "jax": jnp.asarray,
        "csr_matrix": csr_matrix,
        "csr_array": csr_array,
    }
    close(advlib.gs1(make[kind](rows), r), reference.gs1(rows, r))


def test_sparse_in_any_layout_and_unchanged() -> None:
    rows, r, _, _ = draw(25)
    wanted = np.asarray(advlib.gs1(csr_matrix(rows), r))
    for layout in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia"):
        np.testing.assert_array_equal(advlib.gs1(csr_matrix(rows).asformat(layout), r), wanted)
    twice = csr_matrix((40, 30))
    plain = csr_matrix(rows)
    twice = csr_matrix(
        (np.repeat(plain.data / 2, 2), np.repeat(plain.indices, 2), plain.indptr * 2), plain.shape
    )
    before = [part.copy() for part in (twice.data, twice.indices, twice.indptr)]
    close(advlib.gs1(twice, r), wanted)
    for part, kept in zip((twice.data, twice.indices, twice.indptr), before, strict=True):
        np.testing.assert_array_equal(part, kept)


@forms
def test_inputs_that_cannot_mean_anything(form: Form) -> None:
    rows, r, _, _ = draw(26)
    cases: list[tuple[dict[str, Any], Any, Any, str]] = [
        ({}, rows[:39], ValueError, r"one row per reward, \(40, D\); got shape \(39, 30\)"),
        ({"temperature": 0.0}, rows, ValueError, "temperature must be at least 0.0001"),
        ({"temperature": np.nan}, rows, ValueError, "temperature"),
        ({"temperature": "cold"}, rows, TypeError, "temperature must be a number"),
        ({"weights": -np.ones(40)}, rows, ValueError, "weights must be at least 0"),
        ({"weights": np.ones(39)}, rows, ValueError, "same length"),
        ({"fallback": "mean"}, rows, ValueError, "fallback must be one of"),
        ({}, np.where(np.arange(40)[:, None] == 8, np.nan, rows), ValueError, "row 8"),
    ]
    for options, features, error, message in cases:
        with pytest.raises(error, match=message):
            advlib.gs1(form(features), r, **options)
    with pytest.raises(ValueError, match="row 2"):
        advlib.gs1(form(rows), np.where(np.arange(40) == 2, np.nan, r))


def test_text_and_vectors_are_no_features() -> None:
    r = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="features must be numbers"):
        advlib.gs1([["a"], ["b"]], r)
    with pytest.raises(TypeError, match="features must be numbers"):
        advlib.gs1(csr_matrix(np.eye(2), dtype=complex), r)
    with pytest.raises(ValueError, match="one row per reward"):
        advlib.gs1(np.zeros(2), r)


def test_sparse_features_stay_outside_traces() -> None:
    rows, r, _, _ = draw(27)
    features = csr_matrix(rows)
    close(advlib.gs1(features, jnp.asarray(r), temperature=jnp.float32(0.1)), advlib.gs1(rows, r))
    with pytest.raises(TypeError, match=r"rewards are traced.*features\.toarray\(\)"):
        jax.jit(lambda r: advlib.gs1(features, r))(r)


def test_an_empty_batch() -> None:
    for features in (np.zeros((0, 3)), csr_matrix((0, 3))):
        assert advlib.gs1(features, np.zeros(0, np.float32)).shape == (0,)


def test_features_without_columns_are_all_alike() -> None:
    _, r, _, _ = draw(28)
    for features in (np.zeros((40, 0)), csr_matrix((40, 0))):
        close(advlib.gs1(features, r), advlib.batch_leave_one_out(r))


# Length buckets.


def test_length_buckets_are_quantiles() -> None:
    rows = advlib.length_buckets([5, 1, 9, 3, 7, 2, 8, 4], num_buckets=4)
    assert rows.shape == (8, 4)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows.sum(1), 1)
    np.testing.assert_array_equal(rows.argmax(1), [2, 0, 3, 1, 2, 0, 3, 1])


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 6) | st.floats(0, 1e6), min_size=1, max_size=30),
    st.integers(1, 9),
)
def test_length_buckets_keep_order_and_ties(lengths: list[float], num_buckets: int) -> None:
    bucket = advlib.length_buckets(lengths, num_buckets=num_buckets).argmax(1)
    order = np.argsort(lengths, kind="stable")
    assert np.all(np.diff(bucket[order]) >= 0)
    for a, b in itertools.combinations(range(len(lengths)), 2):
        assert lengths[a] != lengths[b] or bucket[a] == bucket[b]


def test_length_buckets_have_cosine_one_or_zero() -> None:
    lengths = np.random.default_rng(29).integers(10, 400, 200)
    r = np.random.default_rng(30).random(200).astype(np.float32)
    rows = advlib.length_buckets(lengths)
    assert set(np.unique(rows @ rows.T)) == {0.0, 1.0}
    near = advlib.gs1(rows, r, temperature=0.01)
    close(near, advlib.leave_one_out(r, rows.argmax(1)), 1e-5)


def test_length_buckets_refuse_what_is_no_length() -> None:
    assert advlib.length_buckets([], num_buckets=3).shape == (0, 3)
    np.testing.assert_array_equal(
        advlib.length_buckets(jnp.array([1, 2, 3, 4]), num_buckets=2),
        advlib.length_buckets([1, 2, 3, 4], num_buckets=2),
    )
    with pytest.raises(ValueError, match="lengths must be finite"):
        advlib.length_buckets([1.0, None])
    with pytest.raises(TypeError, match="lengths must be numbers"):
        advlib.length_buckets(["long", "short"])
    with pytest.raises(ValueError, match="num_buckets must be at least 1"):
        advlib.length_buckets([1, 2], num_buckets=0)
    with pytest.raises(TypeError, match="num_buckets must be a Python integer"):
        advlib.length_buckets([1, 2], num_buckets=2.5)
