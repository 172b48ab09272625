"""Small inputs that broke other tools, with the right answers, by the id of the report."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advlib
from advlib import masking
from tests.test_laws import CompileCount

THIRD, ROOT_HALF, ROOT_3_4 = 1 / 3, 0.5**0.5, 0.75**0.5


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def booleans(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def close(got: Any, wanted: Any, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=0, atol=atol)


# (function, rewards, ids, options, right answer). One group where ids is None.
NUMBERS: dict[str, tuple[str, Any, Any, dict[str, Any], Any]] = {
    "BR-01": ("grpo", [1, 1, 0], [0, 1, 1], {"eps": 0.0}, [0, ROOT_HALF, -ROOT_HALF]),
    "BR-02-zero": ("leave_one_out", [2, 1, 3], [0, 1, 1], {}, [0, -2, 2]),
    "BR-02-raw": ("leave_one_out", [2, 1, 3], [0, 1, 1], {"fallback": "raw"}, [2, -2, 2]),
    "BR-05": ("grpo", [0.1] * 3, None, {"eps": 0.0}, [0, 0, 0]),
    "BR-07-ddof-1": (
        "leave_one_out",
        [0, 1, 1],
        None,
        {"normalize": True, "eps": 0.0},
        [-1, ROOT_HALF, ROOT_HALF],
    ),
    "BR-07-ddof-0": (
        "leave_one_out",
        [0, 1, 1],
        None,
        {"normalize": True, "ddof": 0, "eps": 0.0},
        [-1, 1, 1],
    ),
    "BR-09": (
        "grpo",
        [1, 0, 1, 0],
        None,
        {"eps": 0.0},
        [ROOT_3_4, -ROOT_3_4, ROOT_3_4, -ROOT_3_4],
    ),
    "BR-10-group": (
        "grpo",
        [0, 1, 0, 10],
        [0, 0, 1, 1],
        {"eps": 0.0},
        [-ROOT_HALF, ROOT_HALF, -ROOT_HALF, ROOT_HALF],
    ),
    "BR-10-batch": (
        "grpo",
        [0, 1, 0, 10],
        [0, 0, 1, 1],
        {"eps": 0.0, "scale": "batch"},
        np.array([-0.5, 0.5, -5.0, 5.0]) / np.std([0, 1, 0, 10], ddof=1),
    ),
    "BR-15-others": ("leave_one_out", [1, 0, 0, 0], None, {}, [1, -THIRD, -THIRD, -THIRD]),
    "BR-15-mean": ("group_mean", [1, 0, 0, 0], None, {}, [0.75, -0.25, -0.25, -0.25]),
    "BR-17": (
        "grpo",
        [1, 1, 0, 0, 9, 9, 8, 8],
        [0] * 4 + [1] * 4,
        {"eps": 0.0},
        [ROOT_3_4, ROOT_3_4, -ROOT_3_4, -ROOT_3_4] * 2,
    ),
    "BR-22": ("group_mean", [1, 0, 0, 0], None, {}, [0.75, -0.25, -0.25, -0.25]),
    "BR-25": (
        "group_mean",
        [1, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
        {},
        [0.5, -0.5, THIRD, THIRD, -2 / 3],
    ),
    "BR-28": ("group_mean", [0.0, -0.0], None, {}, [0, 0]),
    "BR-29": ("group_mean", [40, 1, 0], None, {"where": booleans(0, 1, 1)}, [0, 0.5, -0.5]),
    "BR-31-mean": (
        "group_mean",
        [np.nan, 1, 0, 1],
        None,
        {"where": booleans(0, 1, 1, 1)},
        [0, THIRD, -2 / 3, THIRD],
    ),
    "BR-31-others": (
        "leave_one_out",
        [np.nan, 1, 0, 1],
        None,
        {"where": booleans(0, 1, 1, 1)},
        [0, 0.5, -1, 0.5],
    ),
    "BR-34-nan": (
        "grpo",
        [2, np.nan, 6],
        None,
        {"where": booleans(1, 0, 1), "ddof": 0, "eps": 0.0},
        [-1, 0, 1],
    ),
    "BR-34-inf": ("group_mean", [1, np.inf, 0], None, {"where": booleans(1, 0, 1)}, [0.5, 0, -0.5]),
}


@pytest.mark.parametrize("report", NUMBERS)
def test_numbers(report: str) -> None:
    name, rewards, ids, options, wanted = NUMBERS[report]
    ids = np.zeros(len(rewards), np.int32) if ids is None else np.array(ids, np.int32)
    function = getattr(advlib, name)
    rewards = f32(*rewards)
    close(function(rewards, ids, **options), wanted)
    # Every path: from the host, under jit, among more groups than there are.
    close(jax.jit(lambda r, g: function(r, g, **options))(rewards, ids), wanted)
    close(function(rewards, ids, num_groups=7, **options), wanted)


def test_br_03_groups_of_one_say_so() -> None:
    for name in ("group_mean", "grpo", "leave_one_out", "max_rl"):
        with pytest.warns(advlib.AdvantageWarning):
            close(getattr(advlib, name)([1.0, 0.0, 0.5], [0, 1, 2]), [0, 0, 0])


@pytest.mark.parametrize("report", ["BR-05", "BR-13", "BR-14"])
def test_constant_groups_are_seen(report: str) -> None:
    rewards = {
        "BR-05": np.array([0.1] * 3),
        "BR-13": np.array([0.1 + 0.2, 0.3, 0.3]),
        "BR-14": np.array([0.5] * 4),
    }[report]
    ids = np.zeros(len(rewards), np.int32)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            assert np.asarray(advlib.constant_groups(rewards, ids, num_groups=1)).tolist() == [True]
            for name in ("group_mean", "grpo", "leave_one_out", "max_rl"):
                assert np.all(np.asarray(getattr(advlib, name)(rewards, ids)) == 0.0)


def test_br_13_a_small_spread_is_a_spread() -> None:
    rewards = f32(2.0, 2.00002)
    assert not np.asarray(advlib.constant_groups(rewards, [0, 0], num_groups=1))[0]
    close(advlib.grpo(rewards, [0, 0], eps=0.0), [-ROOT_HALF, ROOT_HALF], atol=1e-4)


def test_br_20_the_key_is_the_pair() -> None:
    groups = advlib.encode_groups([("x", 0), ("x", 0), ("y", 0), ("y", 0)])
    assert groups.num_groups == 2
    got = advlib.group_mean([1.0, 1.0, 0.0, 0.0], groups.ids, num_groups=groups.num_groups)
    assert np.all(np.asarray(got) == 0.0)


@pytest.mark.parametrize("missing", [None, float("nan"), np.float64("nan")])
@pytest.mark.parametrize("report", ["BR-21", "BR-28"])
def test_a_missing_key_is_not_a_key(report: str, missing: Any) -> None:
    keys = [missing] * 4 if report == "BR-21" else ["a", "b", missing, missing]
    first = "0" if report == "BR-21" else "2"
    with pytest.raises(ValueError, match=rf"missing.*\b{first}\b|\b{first}\b.*missing"):
        advlib.encode_groups(keys)


def test_br_24_each_step_has_its_own_mask() -> None:
    masks = booleans(0, 0, 1, 1, 0, 1, 1, 0).reshape(2, 4)
    close(advlib.broadcast_to_tokens(f32(0.5, 0.5), masks), [[0, 0, 0.5, 0.5], [0, 0.5, 0.5, 0]])


def test_br_28_signed_zeros_tie() -> None:
    assert np.asarray(advlib.constant_groups(f32(0.0, -0.0), [0, 0], num_groups=1))[0]
    credit = advlib.gar(f32(0.0, -0.0), [0, 1], [0, 0], num_groups=1)
    assert np.all(np.asarray(credit.advantages) == 0.0)


def test_br_31_a_missing_reward_is_masked_or_refused() -> None:
    rewards, ids = [None, 1.0, 0.0, 1.0], [0, 0, 0, 0]
    close(advlib.group_mean(rewards, ids, where=booleans(0, 1, 1, 1)), [0, THIRD, -2 / 3, THIRD])
    with pytest.raises((TypeError, ValueError), match=r"rewards.*row 0"):
        advlib.group_mean(rewards, ids)


def test_br_33_one_scorable_row_left() -> None:
    where = booleans(0, 0, 0, 1)
    for name in ("group_mean", "grpo", "leave_one_out", "max_rl"):
        function = getattr(advlib, name)
        with pytest.warns(advlib.AdvantageWarning):
            got = function(f32(np.nan, np.nan, np.nan, 1.0), [0, 0, 0, 0], where=where)
        close(got, [0, 0, 0, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_br_34_an_unmasked_reward_names_its_row(bad: float) -> None:
    with pytest.raises(ValueError, match=r"rewards.*\b1\b"):
        advlib.group_mean(f32(1.0, bad, 0.0), [0, 0, 0])


def test_br_39_no_valid_token() -> None:
    losses, mask = f32(1.0, 2.0), booleans(0, 0)
    assert float(masking.masked_mean(losses, mask)) == 0.0
    slope = jax.grad(lambda x: masking.masked_mean(x, mask))(losses)
    assert np.all(np.asarray(slope) == 0.0)
    rows = jnp.stack([losses, losses])
    masks = booleans(0, 0, 1, 1).reshape(2, 2)
    close(masking.masked_mean(rows, masks, axis=1), [0.0, 1.5])


def test_br_40_the_guard_does_not_bias() -> None:
    assert float(masking.masked_mean(f32(2.0), booleans(1))) == 2.0
    assert float(masking.masked_mean(f32(2.0, 9.0), booleans(1, 0))) == 2.0


def test_br_41_count_the_tokens_that_are_kept() -> None:
    losses = np.ones((2, 5), np.float32)
    mask = masking.response_mask(np.array([[5, 5, 2, 0, 0], [5, 5, 5, 5, 5]]), [2])
    kept = np.asarray(mask) & np.array([[True], [False]])
    assert float(masking.masked_mean(losses, kept)) == 1.0


def test_br_42_length_is_not_the_loss_mask() -> None:
    tokens = np.array([[5, 7, 2, 0, 0], [5, 7, 9, 4, 6]])
    where = np.array([True, False])
    mask = np.asarray(masking.response_mask(tokens, [2]))
    loss_mask = mask & where[:, None]
    lengths = mask.sum(axis=1)
    assert (lengths.mean(), lengths.min()) == (4.0, 3)
    assert not loss_mask[1].any()
    close(advlib.broadcast_to_tokens(f32(1.0, 1.0), loss_mask)[1], np.zeros(5))


def test_br_44_history_is_not_trained_on() -> None:
    mask = booleans(0, 0, 0, 0, 0, 0, 1, 1)[None]
    close(advlib.broadcast_to_tokens(f32(0.5), mask), [[0, 0, 0, 0, 0, 0, 0.5, 0.5]])
    close(masking.shift_to_targets(mask), [[0, 0, 0, 0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("report", "tokens", "ends", "wanted"),
    [
        ("BR-46", [5, 7, 2, 2, 2], [2], [1, 1, 1, 0, 0]),
        ("BR-46-truncated", [5, 7, 9, 4, 6], [2], [1, 1, 1, 1, 1]),
        ("BR-47", [5, 3, 0, 0], [2, 3], [1, 1, 0, 0]),
        ("BR-47-first", [2, 3, 0, 0], [2, 3], [1, 0, 0, 0]),
    ],
)
def test_the_first_end_is_an_action(
    report: str, tokens: list[int], ends: list[int], wanted: list[int]
) -> None:
    row = np.array([tokens], np.int32)
    assert np.asarray(masking.response_mask(row, ends)).tolist() == [[bool(w) for w in wanted]]
    jitted = jax.jit(lambda t: masking.response_mask(t, tuple(ends)))
    assert np.asarray(jitted(row)).tolist() == [[bool(w) for w in wanted]]


def test_br_48_the_first_token_is_nobodys_target() -> None:
    close(masking.shift_to_targets(booleans(0, 0, 1, 1)[None]), [[0, 1, 1]])


@pytest.mark.parametrize("ddof", [0, 1])
def test_br_51_whitening_one_token(ddof: int) -> None:
    x, mask = f32(3.0, np.nan), booleans(1, 0)
    got = np.asarray(masking.masked_whiten(x, mask, ddof=ddof))
    assert np.all(np.isfinite(got))
    assert got[1] == 0.0
    slope = jax.grad(lambda x: masking.masked_whiten(x, mask, ddof=ddof).sum())(x)
    assert np.all(np.isfinite(np.asarray(slope)))
    none = np.asarray(masking.masked_whiten(x, booleans(0, 0), ddof=ddof))
    assert np.all(none == 0.0)


def test_br_52_one_mean_for_all_shards() -> None:
    x = f32(1.0, 2.0, 5.0, 8.0)
    wanted = (x - 4.0) / 7.5**0.5
    close(masking.masked_whiten(x, booleans(1, 1, 1, 1), ddof=0), wanted)


def test_br_60_no_outer_product() -> None:
    advantages = np.array([[1, 1], [-1, -1]], np.float32)
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        advlib.broadcast_to_tokens(advantages, np.ones((2, 2), bool))
    assert advlib.broadcast_to_tokens(f32(1, -1), np.ones((2, 2), bool)).shape == (2, 2)


def test_br_66_tool_tokens_carry_no_penalty() -> None:
    penalty, mask = f32(-0.1, -0.9, -0.1), booleans(1, 0, 1)
    rewards = np.asarray(masking.rewards_to_tokens(f32(1.0), mask[None]))[0] + penalty
    returns = advlib.gae(rewards, np.zeros(3, np.float32), mask=mask, lam=1.0)
    close(returns, [0.8, 0.0, 0.9])


def test_br_73_every_group_filtered_out() -> None:
    rewards, ids = f32(1, 1, 0, 0), np.array([0, 0, 1, 1])
    kept = ~np.asarray(advlib.constant_groups(rewards, ids, num_groups=2))[ids]
    assert not kept.any()
    for name in ("group_mean", "grpo", "leave_one_out", "max_rl"):
        got = getattr(advlib, name)(rewards[kept], ids[kept])
        assert np.asarray(got).shape == (0,)
    assert float(masking.masked_mean(np.zeros((0, 4), np.float32), np.zeros((0, 4), bool))) == 0.0


def test_br_75_a_masked_value_bootstraps_nobody() -> None:
    mask = booleans(1, 1, 0)
    for value in (50.0, np.nan, np.inf):
        got = advlib.gae(f32(0, 2, 0), f32(0, 0, value), mask=mask, lam=0.9)
        close(got, [1.8, 2.0, 0.0])


@pytest.mark.parametrize(("discount", "wanted"), [(1.0, [1, 1, 0]), (0.0, [0, 1, 0])])
def test_br_77_a_reward_on_an_observation_is_not_lost(discount: float, wanted: list[float]) -> None:
    mask = booleans(1, 1, 0)
    settled = masking.settle_rewards(f32(0, 0, 1), mask)
    close(settled, [0, 1, 0])
    zeros = np.zeros(3, np.float32)
    close(advlib.gae(settled, zeros, mask=mask, discount=discount, lam=1.0), wanted)


def test_br_78_a_gap_does_not_reset_the_return() -> None:
    zeros, mask = np.zeros(3, np.float32), booleans(1, 0, 1)
    close(advlib.gae(f32(0, 0, 2), zeros, mask=mask, lam=1.0), [2, 0, 2])


def test_br_84_narrow_rewards_keep_their_baseline() -> None:
    bf16 = jnp.array([2.0, 2.0, 2.0, 2.015625], jnp.bfloat16)
    got = advlib.grpo(bf16, jnp.zeros(4, jnp.int32), eps=0.0)
    assert got.dtype == jnp.float32
    close(got, [-0.5, -0.5, -0.5, 1.5])
    for dtype in (np.int64, np.int8, np.bool_):
        got = advlib.group_mean(np.array([1, 0, 0, 1], dtype), [0, 0, 0, 0])
        close(got, [0.5, -0.5, -0.5, 0.5])


def test_br_86_float64_is_not_narrowed_in_silence() -> None:
    rewards = np.array([1e8, 1e8 + 1])
    with pytest.warns(advlib.AdvantageWarning):
        advlib.group_mean(rewards, [0, 0])
    with jax.enable_x64(True):
        close(advlib.group_mean(rewards, [0, 0]), [-0.5, 0.5], atol=0)


def test_br_88_the_slope_of_a_constant_group() -> None:
    slope = jax.grad(lambda r: advlib.grpo(r, jnp.zeros(2, jnp.int32), eps=0.0)[0])(jnp.ones(2))
    close(slope, [0, 0])


@pytest.mark.parametrize("name", ["grpo", "leave_one_out", "max_rl", "group_mean"])
def test_br_89_the_unused_branch_has_no_slope(name: str) -> None:
    ids = jnp.array([0, 0, 1, 2, 2])
    function = getattr(advlib, name)
    for rewards in ([0.0] * 5, [1.0, 1.0, 3.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 2.0, 2.0]):
        slope = jax.jacobian(lambda r: function(r, ids))(jnp.array(rewards))
        assert np.all(np.isfinite(np.asarray(slope)))
    tiny = jax.grad(lambda x: masking.masked_whiten(x, booleans(1, 1, 1)).sum())(jnp.ones(3))
    assert np.all(np.isfinite(np.asarray(tiny)))


def test_br_92_an_id_beyond_the_last_group() -> None:
    with pytest.raises(ValueError, match=r"group_ids.*5"):
        advlib.group_mean(f32(1, 2, 3), [0, 1, 5], num_groups=3)
    assert advlib.encode_groups([0, 1, 5]).ids.tolist() == [0, 1, 2]


def test_br_94_an_empty_group_has_no_extremes() -> None:
    rewards, ids = f32(1, 2, 3), np.array([0, 0, 2])
    hacks = booleans(1, 0, 1)
    close(advlib.hack_floor(rewards, hacks, ids, num_groups=3), [1, 2, 3])
    credit = advlib.gar(rewards, [0, 0, 0], ids, hacks=hacks, num_groups=3)
    for leaf in jax.tree.leaves(credit):
        assert np.all(np.isfinite(np.asarray(leaf)))
    margins = np.ones((3, 2), np.float32)
    for got in (
        advlib.rank_margin([0, 1, 0], margins, ids, num_groups=3),
        advlib.win_rate([0, 1, 0], ids, num_groups=3),
        advlib.constant_groups(rewards, ids, num_groups=3),
    ):
        assert np.all(np.isfinite(np.asarray(got, np.float32)))


def test_br_95_ragged_batches_share_programs() -> None:
    rng = np.random.default_rng(0)
    for name in ("grpo", "leave_one_out"):
        jax.clear_caches()
        with CompileCount() as compiles:
            for _ in range(30):
                size, num_groups = rng.integers(50, 81), rng.integers(5, 21)
                rewards = rng.random(size).astype(np.float32)
                got = getattr(advlib, name)(rewards, rng.integers(num_groups, size=size))
                assert got.shape == (size,)
        assert compiles.count <= 3


@pytest.mark.parametrize("make", [np.array, jnp.array])
def test_br_97_inputs_survive(make: Any) -> None:
    rewards, ids = make([1.0, 0.0, 0.5], dtype="float32"), make([0, 0, 0], dtype="int32")
    for name in ("group_mean", "grpo", "leave_one_out", "max_rl"):
        first = np.asarray(getattr(advlib, name)(rewards, ids))
        np.testing.assert_array_equal(first, getattr(advlib, name)(rewards, ids))
    close(rewards, [1.0, 0.0, 0.5])


def test_br_98_a_group_on_several_devices() -> None:
    from jax.sharding import NamedSharding, PartitionSpec

    rewards = f32(1, 0, 0, 1, 3, 5, 7, 2)
    ids = np.array([0, 1, 0, 1, 0, 1, 0, 0], np.int32)
    wanted = np.asarray(advlib.leave_one_out(rewards, ids))
    values = f32(*np.linspace(-1, 1, 8))
    trace = np.asarray(advlib.gae(rewards, values, discount=0.9))
    for count in (1, 2, 4):
        mesh = jax.make_mesh((count,), ("x",), devices=jax.devices()[:count])
        place = NamedSharding(mesh, PartitionSpec("x"))
        on = [jax.device_put(a, place) for a in (rewards, ids, values)]
        close(jax.jit(advlib.leave_one_out)(on[0], on[1]), wanted, atol=1e-6)
        close(jax.jit(lambda r, v: advlib.gae(r, v, discount=0.9))(on[0], on[2]), trace, 1e-5)


def test_br_104_a_reversed_view() -> None:
    backwards = np.array([1.0, 2.0, 3.0], np.float32)[::-1]
    ids = np.array([1, 0, 0, 0], np.int32)[::-1][:3]
    close(advlib.group_mean(backwards, ids), [1, 0, -1])
    close(advlib.leave_one_out(backwards, ids), [1.5, 0, -1.5])


def test_br_119_more_rewards_than_samples() -> None:
    with pytest.raises(ValueError, match=r"(?s)(\(3,\).*\(2,\)|\(2,\).*\(3,\))"):
        advlib.group_mean(f32(1, 0, 1), [0, 0])
