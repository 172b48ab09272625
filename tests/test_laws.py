"""One table of estimators times one set of laws."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import advlib
from tests import reference, table
from tests.table import CONSTANTS, NUM_GROUPS, NUM_MASKED, ROWS, Batch, Row, batches, outputs

pytestmark = pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")

POISONS = {"rewards": [np.nan, np.inf, -np.inf, 1e30], "tiers": [-7, 99, 2**31 - 1]}


def rows_with(**laws: Any) -> pytest.MarkDecorator:
    """The rows of the table that keep these laws."""
    kept = [row for row in ROWS if all(getattr(row, k) == v for k, v in laws.items())]
    return pytest.mark.parametrize("row", kept, ids=str)


every_row = rows_with()
rewards_rows = rows_with(signal="rewards")
differentiable = pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.name.startswith("win_rate")], ids=str
)
grouped_by_id = pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.name.startswith("batch_")], ids=str
)


def law(examples: int = 15) -> Callable[[Any], Any]:
    """Let hypothesis draw what the test names `data`."""

    def decorate(test: Any) -> Any:
        return settings(max_examples=examples)(given(data=st.data())(test))

    return decorate


@functools.cache
def _jitted(row: Row) -> Any:
    return jax.jit(lambda b: row.call(advlib, b))


def jitted(row: Row, b: Batch) -> list[np.ndarray]:
    return outputs(_jitted(row)(b))


def weighted(row: Row, b: Batch) -> jax.Array:
    a = table.advantages(row.call(advlib, b))
    return jnp.sum(a * jnp.cos(jnp.arange(a.shape[0], dtype=a.dtype)))


def _through(row: Row) -> str:
    return "rewards" if row.signal == "rewards" else "margins"


@functools.cache
def _vmapped(row: Row) -> Any:
    return jax.jit(jax.vmap(lambda b: row.call(advlib, b)))


@functools.cache
def _gradient(row: Row) -> Any:
    name = _through(row)

    def loss(x: Any, b: Batch) -> jax.Array:
        return weighted(row, b._replace(**{name: x}))

    return jax.jit(jax.grad(loss))


def gradient(row: Row, b: Batch) -> np.ndarray:
    return np.asarray(_gradient(row)(getattr(b, _through(row)), b))


def by_row(b: Batch, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a for a in arrays if len(a) == b.size]


def by_group(b: Batch, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a for a in arrays if len(a) == b.num_groups]


def assert_close(got: list[np.ndarray], wanted: list[np.ndarray], atol: float) -> None:
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=0, atol=atol)


def assert_same_bits(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype
        assert g.tobytes() == w.tobytes(), (g, w)


def neutral(b: Batch) -> Batch:
    """The same batch with zeros where the mask says that nothing was measured."""
    return b._replace(
        rewards=np.where(b.where, b.rewards, 0).astype(b.rewards.dtype),
        tiers=np.where(b.where, b.tiers, 0).astype(b.tiers.dtype),
    )


# What the numbers are.


@every_row
@law(25)
def test_equals_the_reference(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    wanted = outputs(row.call(reference, b))
    got = outputs(row.call(advlib, b))
    assert_close(got, wanted, table.tolerance(row, b))
    assert all(a.dtype == np.float32 for a in got)


@rows_with(needs_candidates=True)
@law(25)
def test_sibling_traces_keep_their_own_reward(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    own = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=b.size, max_size=b.size))
    b = b._replace(rewards=np.array(own, np.float32))
    wanted, got = row.call(reference, b), row.call(advlib, b)
    a, w = np.asarray(table.advantages(got)), table.advantages(wanted)
    np.testing.assert_allclose(a, w, rtol=0, atol=table.tolerance(row, b))


@every_row
@law()
def test_masked_rows_are_zero(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    for a in by_row(b, jitted(row, b)):
        assert np.all(a[~b.where] == 0.0)


@rows_with(zero_sum=True)
@law()
def test_advantages_sum_to_zero(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    a = jitted(row, b)[0]
    populations = table.valid_groups(b) if row.grouped else [np.flatnonzero(b.where)]
    for rows in populations:
        assert abs(float(np.sum(a[rows], dtype=np.float64))) <= b.size * table.tolerance(row, b)


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if r.name in ("gar[candidates]", "rank_margin[candidates]")],
    ids=str,
)
@law()
def test_advantages_sum_to_zero_over_candidates(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    a = jitted(row, b)[0]
    for rows in table.valid_groups(b):
        first = [c[0] for c in reference.candidates_of(rows, b.candidates)]
        assert abs(float(np.sum(a[first], dtype=np.float64))) <= b.size * table.tolerance(row, b)
        for traces in reference.candidates_of(rows, b.candidates):
            assert len(set(a[traces].tolist())) == 1


@rows_with(convex=True)
@law()
def test_baseline_lies_between_the_others(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    baseline = b.rewards.astype(np.float64) - jitted(row, b)[0]
    atol = table.tolerance(row, b)
    populations = table.valid_groups(b) if row.grouped else [list(np.flatnonzero(b.where))]
    for rows in populations:
        for i in rows:
            others = [b.rewards[j] for j in rows if j != i]
            if others:
                assert min(others) - atol <= baseline[i] <= max(others) + atol


@rows_with(name="gar")
@law()
def test_credit_and_scale_keep_their_range(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    f_min, lambda_max = 0.25, 1.4
    got = advlib.gar(
        b.rewards, b.tiers, b.ids, f_min=f_min, lambda_max=lambda_max, **table.rank_options(b)
    )
    credit, rate, scale = np.asarray(got.credit), np.asarray(got.win_rate), np.asarray(got.scale)
    assert np.all((rate >= 0.0) & (rate <= 1.0))
    assert np.all((credit == 0.0) | ((credit >= f_min - 1e-6) & (credit <= 1.0 + 1e-6)))
    assert np.all((scale >= 1.0 - 1e-6) & (scale <= lambda_max + 1e-6))


@rows_with(name="win_rate")
@law()
def test_win_rates_share_out_half(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    rate = jitted(row, b)[0]
    assert np.all((rate >= 0.0) & (rate <= 1.0))
    for rows in table.valid_groups(b):
        ranked = [i for i in rows if b.hacks[i] or b.tiers[i] >= 0]
        if len(ranked) > 1:
            np.testing.assert_allclose(rate[ranked].sum(), len(ranked) / 2, atol=1e-5)
        elif ranked:
            assert rate[ranked[0]] == 1.0


@law()
def test_credit_without_a_preference_is_the_group_mean(data: Any) -> None:
    plain = next(row for row in ROWS if row.name == "gar")
    b = data.draw(batches(plain))
    b = b._replace(hacks=np.zeros(b.size, np.bool_))
    wanted = np.asarray(advlib.group_mean(b.rewards, b.ids, **table.group_options(b)))
    unranked = np.full(b.size, -1, np.int32)
    for tiers, options in [
        (unranked, {}),
        (np.zeros_like(unranked), {}),
        (b.tiers, {"f_min": 1.0}),
    ]:
        got = advlib.gar(b.rewards, tiers, b.ids, **table.group_options(b), **options)
        np.testing.assert_allclose(got.advantages, wanted, atol=table.tolerance(plain, b))


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
def test_a_reward_at_the_mean_is_not_above_it(offset: float) -> None:
    """Decimals are not float32 numbers; their rounding must not make a winner."""
    for middle in (1, 2, 5):
        rewards = np.array([0.1, 0.3, *[0.2] * middle], np.float32) + np.float32(offset)
        got = advlib.gar(rewards, np.zeros(len(rewards), np.int32))
        assert np.asarray(got.credit).tolist() == [0.0, 1.0, *[0.0] * middle]
        assert float(got.scale[0]) == 1.0


# What does not matter.


@every_row
@law()
def test_permutation(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    order = np.array(data.draw(st.permutations(range(b.size))))
    got, wanted = jitted(row, table.take(b, order)), jitted(row, b)
    atol = table.tolerance(row, b)
    assert_close(by_row(b, got), [a[order] for a in by_row(b, wanted)], atol)
    assert_close(by_group(b, got), by_group(b, wanted), atol)


@grouped_by_id
@law()
def test_contiguous_groups_are_a_special_case(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    order = np.argsort(b.ids, kind="stable")
    got, wanted = jitted(row, table.take(b, order)), jitted(row, b)
    assert_close(by_row(b, got), [a[order] for a in by_row(b, wanted)], table.tolerance(row, b))


@grouped_by_id
@law()
def test_group_labels_do_not_matter(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    label = np.array(data.draw(st.permutations(range(b.num_groups))), np.int32)
    got = jitted(row, b._replace(ids=label[b.ids], margins=b.margins[np.argsort(label)]))
    wanted, atol = jitted(row, b), table.tolerance(row, b)
    assert_close(by_row(b, got), by_row(b, wanted), atol)
    assert_close([a[label] for a in by_group(b, got)], by_group(b, wanted), atol)


@pytest.mark.parametrize("row", [row for row in ROWS if row.shift], ids=str)
@law()
def test_shift(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    constant = np.float32(data.draw(st.sampled_from([1.5, -3.25, 0.5, 8.0])))
    shifted = b._replace(rewards=b.rewards + constant)
    got, wanted = jitted(row, shifted), jitted(row, b)
    if row.shift == "equivariant":
        wanted = [a + np.where(b.where, constant, 0) for a in wanted]
    assert_close(got, wanted, 2 * table.tolerance(row, shifted))


@rows_with(scale="linear")
@law()
def test_positive_scale(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    for factor in (2.0, 0.375, 50.0):
        scaled = b._replace(rewards=(b.rewards * np.float32(factor)).astype(np.float32))
        got, wanted = jitted(row, scaled), jitted(row, b)
        atol = table.tolerance(row, b) + table.tolerance(row, scaled)
        assert_close([got[0]], [wanted[0] * factor], (1 + factor) * atol)


@rows_with(scale="invariant")
@law()
def test_scale_invariance(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    for factor in (2.0, 0.375, 50.0):
        scaled = b._replace(rewards=(b.rewards * np.float32(factor)).astype(np.float32))
        assert_close(jitted(row, scaled), jitted(row, b), 4 * table.tolerance(row, b))


# What is not a measurement.


@every_row
@law()
def test_masking_is_deleting(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=16, num_masked=NUM_MASKED))
    kept = np.flatnonzero(b.where)
    short = table.take(b, kept)
    got, wanted = jitted(row, short), jitted(row, b)
    atol = table.tolerance(row, b)
    assert_close(by_row(short, got), [a[kept] for a in by_row(b, wanted)], atol)
    assert_close(by_group(b, got), by_group(b, wanted), atol)


@every_row
@law()
def test_poison_in_masked_slots_changes_no_bit(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    clean = neutral(b)
    wanted = jitted(row, clean)
    for poison in POISONS[row.signal]:
        column = getattr(clean, row.signal).copy()
        column[~b.where] = poison
        dirty = clean._replace(**{row.signal: column})
        assert_same_bits(jitted(row, dirty), wanted)
        assert_same_bits(outputs(row.call(advlib, dirty)), outputs(row.call(advlib, clean)))


@differentiable
@law()
def test_poison_in_masked_slots_changes_no_bit_of_the_gradient(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=16))
    clean = neutral(b)
    wanted = gradient(row, clean)
    assert np.all(np.isfinite(wanted))
    if row.signal == "rewards":
        assert np.all(wanted[~b.where] == 0.0)
    for poison in POISONS[row.signal]:
        column = getattr(clean, row.signal).copy()
        column[~b.where] = poison
        assert_same_bits([gradient(row, clean._replace(**{row.signal: column}))], [wanted])


@every_row
@law()
def test_nothing_of_a_masked_row_counts(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    elsewhere = np.where(b.where, b.ids, (b.ids + 1) % b.num_groups).astype(np.int32)
    moved = b._replace(
        ids=elsewhere,
        hacks=np.where(b.where, b.hacks, ~b.hacks),
        rewards=np.where(b.where, b.rewards, -b.rewards - 9).astype(np.float32),
        tiers=np.where(b.where, b.tiers, 3 - b.tiers).astype(np.int32),
        candidates=np.where(b.where, b.candidates, 0).astype(np.int32),
    )
    assert_same_bits(jitted(row, moved), jitted(row, b))


@grouped_by_id
@law()
def test_id_out_of_range_counts_as_masked_inside_jit(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    lost = np.array(data.draw(st.lists(st.booleans(), min_size=b.size, max_size=b.size)))
    for outside in (-1, b.num_groups, b.num_groups + 100, -(2**31), 2**31 - 1):
        ids = np.where(lost, outside, b.ids).astype(np.int32)
        got = jitted(row, b._replace(ids=ids))
        assert_same_bits(got, jitted(row, b._replace(where=b.where & ~lost)))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.signal == "rewards" and row.grouped], ids=str
)
@law()
def test_an_unmasked_nan_stays_in_its_group_and_shows(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    groups = [rows for rows in table.valid_groups(b) if len(rows) > 1]
    if not groups:
        return
    rows = data.draw(st.sampled_from(groups))
    hit = data.draw(st.sampled_from(rows))
    rewards = b.rewards.copy()
    rewards[hit] = np.nan
    got, wanted = jitted(row, b._replace(rewards=rewards)), jitted(row, b)
    elsewhere = np.setdiff1d(np.arange(b.size), rows)
    assert_same_bits(
        [a[elsewhere] for a in by_row(b, got)], [a[elsewhere] for a in by_row(b, wanted)]
    )
    assert np.isnan(got[0][hit])
    if row.name == "hack_floor":
        assert np.all(np.isnan(got[0][rows]) == (b.hacks[rows] | (np.array(rows) == hit)))
    elif not row.needs_candidates:
        assert np.all(np.isnan(got[0][rows]))


# Degenerate groups.


@rows_with(constant_is_zero=True)
def test_constant_groups_are_exactly_zero(row: Row) -> None:
    num_groups = NUM_GROUPS[16]
    values = (*CONSTANTS, 1e-3, 12345.678, -0.7)
    for size, value in itertools.product(range(2, 10), values):
        constant = np.arange(16) < size
        b = Batch(
            rewards=np.where(constant, value, np.arange(16)).astype(np.float32),
            ids=np.where(constant, 0, 1 + np.arange(16) % 2).astype(np.int32),
            where=constant if row.name.startswith("batch_") else np.ones(16, np.bool_),
            tiers=np.where(constant, 1, np.arange(16) % 3).astype(np.int32),
            margins=np.full((num_groups, 3), 0.1, np.float32),
            hacks=np.zeros(16, np.bool_),
            candidates=np.arange(16, dtype=np.int32),
        )
        assert np.all(jitted(row, b)[0][constant] == 0.0)
        assert np.all(np.asarray(table.advantages(row.call(advlib, b)))[constant] == 0.0)
        if not row.name.startswith("win_rate"):
            assert np.all(np.isfinite(gradient(row, b)))


@rows_with(lone_is_zero=True)
@law()
def test_a_sample_alone_has_no_advantage(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=8))
    lone = data.draw(st.integers(0, 7))
    if row.name.startswith("batch_"):
        b = b._replace(where=np.arange(8) == lone)
    else:
        ids = np.where(np.arange(8) == lone, 0, 1 + b.ids % 2).astype(np.int32)
        b = b._replace(ids=ids, candidates=np.arange(8, dtype=np.int32))
    assert jitted(row, b)[0][lone] == 0.0


@every_row
def test_a_batch_without_a_valid_row_is_zero(row: Row) -> None:
    b = Batch(
        rewards=np.full(16, np.nan, np.float32),
        ids=np.arange(16, dtype=np.int32) % 6,
        where=np.zeros(16, np.bool_),
        tiers=np.zeros(16, np.int32),
        margins=np.ones((6, 3), np.float32),
        hacks=np.ones(16, np.bool_),
        candidates=np.arange(16, dtype=np.int32),
    )
    for a in by_row(b, jitted(row, b)):
        assert np.all(a == 0.0)
    if not row.name.startswith("win_rate"):
        assert np.all(gradient(row, b) == 0.0)
    row.call(advlib, b)


@every_row
def test_an_empty_batch_is_empty(row: Row) -> None:
    empty = Batch(
        rewards=np.zeros(0, np.float32),
        ids=np.zeros(0, np.int32),
        where=np.zeros(0, np.bool_),
        tiers=np.zeros(0, np.int32),
        margins=np.ones((2, 3), np.float32),
        hacks=np.zeros(0, np.bool_),
        candidates=np.zeros(0, np.int32),
    )
    assert np.asarray(table.advantages(row.call(advlib, empty))).shape == (0,)


@differentiable
@law()
def test_gradients_are_finite(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=16))
    assert np.all(np.isfinite(gradient(row, b)))
    flat = b._replace(rewards=np.full(b.size, 0.97, np.float32))
    assert np.all(np.isfinite(gradient(row, flat)))
    singles = flat._replace(ids=np.minimum(np.arange(b.size), b.num_groups - 1).astype(np.int32))
    assert np.all(np.isfinite(gradient(row, singles._replace(rewards=b.rewards))))


@rewards_rows
def test_gradients_are_those_of_the_reference(row: Row) -> None:
    """Central differences of the float64 loops, where no two rewards tie."""
    rng = np.random.default_rng(7)
    step, weights = 1e-6, np.cos(np.arange(16))
    for _ in range(3):
        b = _random_batch(rng, 16, NUM_GROUPS[16])
        # The floor counts as a constant, so hacks would differ on purpose.
        b = b._replace(hacks=np.zeros(16, np.bool_))
        b = table.tied(b) if row.needs_candidates else b
        wanted = np.zeros(16)
        with reference.precision(np.float64):
            for i in range(16):
                ends = []
                for sign in (1.0, -1.0):
                    rewards = b.rewards.astype(np.float64)
                    rewards[i] += sign * step
                    a = table.advantages(row.call(reference, b._replace(rewards=rewards)))
                    ends.append(float(a @ weights))
                wanted[i] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient(row, b), wanted, rtol=2e-3, atol=2e-3)


# How it is called.


@every_row
@law(5)
def test_lists_numpy_and_jax_arrays_agree(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=8))
    wanted = outputs(row.call(advlib, b))
    plain = Batch(*(a.tolist() for a in b))

    class Lists(Batch):
        num_groups = b.num_groups

    from_lists = Lists(*plain)._replace(margins=b.margins.tolist())
    assert_same_bits(outputs(row.call(advlib, from_lists)), wanted)
    on_device = Batch(*(jnp.asarray(a) for a in b))
    assert_close(outputs(row.call(advlib, on_device)), wanted, table.tolerance(row, b))


@every_row
@law(5)
def test_jit_changes_nothing(row: Row, data: Any) -> None:
    b = data.draw(batches(row))
    assert_close(outputs(row.call(advlib, b)), jitted(row, b), table.tolerance(row, b))


@every_row
@law(5)
def test_vmap_is_a_loop(row: Row, data: Any) -> None:
    singles = [data.draw(batches(row, size=16)) for _ in range(3)]
    stacked = Batch(*(np.stack(column) for column in zip(*singles, strict=True)))
    got = outputs(_vmapped(row)(stacked))
    for i, b in enumerate(singles):
        assert_close([a[i] for a in got], jitted(row, b), table.tolerance(row, b))


@rewards_rows
def test_narrow_dtypes_are_promoted(row: Row) -> None:
    b = Batch(
        rewards=np.array([1, 0, 0, 1, 1, 1, 0, 1], np.float32),
        ids=np.array([0, 0, 1, 1, 1, 0, 1, 2], np.int32),
        where=np.array([1, 1, 1, 1, 1, 1, 0, 1], np.bool_),
        tiers=np.array([0, -1, -1, 0, 1, 1, 0, 0], np.int32),
        margins=np.ones((3, 3), np.float32),
        hacks=np.zeros(8, np.bool_),
        candidates=np.arange(8, dtype=np.int32),
    )
    wanted = outputs(row.call(advlib, b))
    names = ("int32", "int8", "bool", "float16", "bfloat16")
    narrow = [b.rewards.astype(jnp.dtype(name)) for name in names]
    for rewards in (*narrow, *map(jnp.asarray, narrow)):
        got = outputs(row.call(advlib, b._replace(rewards=rewards)))
        assert all(a.dtype == np.float32 for a in got)
        assert_close(got, wanted, 2e-6)


@rewards_rows
@law(10)
def test_narrow_floats_accumulate_in_float32(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=8))
    narrow = b.rewards.astype(jnp.dtype(data.draw(st.sampled_from(["float16", "bfloat16"]))))
    wide = b._replace(rewards=narrow.astype(np.float32))
    got = outputs(row.call(advlib, b._replace(rewards=narrow)))
    assert_close(got, outputs(row.call(advlib, wide)), table.tolerance(row, wide))


@every_row
@law(10)
def test_float64_is_kept_with_x64(row: Row, data: Any) -> None:
    b = data.draw(batches(row, size=16))
    # Six decimals are not float32 numbers, so a detour through float32 would show.
    fine = b._replace(
        rewards=np.round(b.rewards.astype(np.float64), 6), margins=b.margins.astype(np.float64)
    )
    with jax.enable_x64(True), reference.precision(np.float64):
        got, wanted = outputs(row.call(advlib, fine)), outputs(row.call(reference, fine))
    if row.name.startswith("win_rate"):
        assert_close(got, wanted, 1e-6)
    else:
        assert got[0].dtype == np.float64
        assert_close(got, wanted, 1e-8 * table.tolerance(row, fine))


@every_row
def test_inputs_can_be_used_again(row: Row) -> None:
    numpy_batch = Batch(
        rewards=np.array([1.0, 0.0, 0.5, 1.0, 0.0, 1.0, 0.25, 0.5], np.float32),
        ids=np.array([0, 1, 0, 1, 2, 2, 0, 2], np.int32),
        where=np.array([1, 1, 1, 1, 1, 0, 1, 1], np.bool_),
        tiers=np.array([0, 1, -1, 0, 0, 2, 1, 0], np.int32),
        margins=np.ones((3, 3), np.float32),
        hacks=np.array([0, 0, 1, 0, 0, 0, 0, 1], np.bool_),
        candidates=np.arange(8, dtype=np.int32),
    )
    for b in (numpy_batch, Batch(*(jnp.asarray(a) for a in numpy_batch))):
        before = [np.array(a) for a in b]
        first, second = outputs(row.call(advlib, b)), outputs(row.call(advlib, b))
        assert_same_bits(first, second)
        assert_same_bits([np.asarray(a) for a in b], before)


class CompileCount:
    """How often XLA compiled anything while the block ran."""

    def __enter__(self) -> CompileCount:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self

    def _listen(self, event: str, duration: float, **_: Any) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"

    def __exit__(self, *_: Any) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)


@every_row
def test_one_trace_per_shape(row: Row) -> None:
    traces = 0

    def counted(b: Batch) -> Any:
        nonlocal traces
        traces += 1
        return row.call(advlib, b)

    rng = np.random.default_rng(0)
    compiled = jax.jit(counted)
    drawn = [_random_batch(rng, 16, 6) for _ in range(6)]
    for b in drawn:
        jax.block_until_ready(compiled(b))
    assert traces == 1
    row.call(advlib, drawn[0])
    with CompileCount() as compiles:
        for b in drawn[1:]:
            row.call(advlib, b)
    assert compiles.count == 0


def _random_batch(rng: np.random.Generator, size: int, num_groups: int) -> Batch:
    return Batch(
        rewards=rng.normal(size=size).astype(np.float32),
        ids=rng.integers(num_groups, size=size).astype(np.int32),
        where=rng.random(size) < 0.8,
        tiers=rng.integers(-1, 4, size=size).astype(np.int32),
        margins=rng.random((num_groups, 3)).astype(np.float32),
        hacks=rng.random(size) < 0.1,
        candidates=np.arange(size, dtype=np.int32),
    )


@pytest.mark.parametrize("name", ["group_mean", "grpo", "leave_one_out", "max_rl"])
def test_a_changing_number_of_groups_does_not_recompile(name: str) -> None:
    function = getattr(advlib, name)
    rewards = np.linspace(0.0, 1.0, 48, dtype=np.float32)
    function(rewards, np.arange(48) % 3)
    with CompileCount() as compiles:
        for num_groups in range(4, 24):
            function(rewards, np.arange(48) % num_groups)
    assert compiles.count == 0


def test_the_compile_counter_counts() -> None:
    with CompileCount() as compiles:
        jax.block_until_ready(jax.jit(lambda x: x * 3.0 + 17.0)(np.ones(3, np.float32)))
    assert compiles.count >= 1
