"""What the host is told when the input cannot mean anything."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advlib
from tests.table import ROWS, Batch, Row

R = np.array([1.0, 0.0, 0.5, 0.25], np.float32)
IDS = np.array([0, 0, 1, 1], np.int32)
GROUP_FUNCTIONS = ["group_mean", "grpo", "leave_one_out", "max_rl", "constant_groups"]
grouped = pytest.mark.parametrize("name", GROUP_FUNCTIONS)


def batch(**changes: Any) -> Batch:
    b = Batch(
        rewards=R,
        ids=IDS,
        where=np.ones(4, np.bool_),
        tiers=np.array([0, 1, 0, -1], np.int32),
        margins=np.ones((2, 3), np.float32),
        hacks=np.zeros(4, np.bool_),
        candidates=np.arange(4, dtype=np.int32),
    )
    return b._replace(**changes)


def complaint(call: Any, *words: str, kind: Any = (TypeError, ValueError)) -> str:
    """Run `call`, want an error, and want each of these words in it."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"
    return message


rewards_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.signal == "rewards"], ids=str
)
grouped_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.name.startswith("batch_")], ids=str
)
every_row = pytest.mark.parametrize("row", ROWS, ids=str)


@grouped_rows
def test_id_out_of_range_names_the_argument_and_the_row(row: Row) -> None:
    for outside in (-1, 17, 99):
        b = batch(ids=np.array([0, 1, outside, 1], np.int32))
        complaint(
            lambda b=b: row.call(advlib, b), "group_ids", str(outside), "row 2", kind=ValueError
        )


@rewards_rows
def test_reward_that_is_not_finite_names_the_row(row: Row) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        b = batch(rewards=np.array([*R[:3], bad], np.float32))
        complaint(lambda b=b: row.call(advlib, b), "rewards", "row 3", kind=ValueError)
        row.call(advlib, b._replace(where=np.array([True, True, True, False])))


@grouped
def test_a_range_beyond_float32_is_refused(name: str) -> None:
    huge = np.array([3e38, -3e38, 0.0, 1.0], np.float32)
    complaint(lambda: getattr(advlib, name)(huge, IDS), "rewards", "float32", kind=ValueError)


@grouped
def test_a_missing_reward_is_not_a_number(name: str) -> None:
    function = getattr(advlib, name)
    complaint(lambda: function([1.0, None, 0.0, 1.0], IDS), "rewards")


@grouped
def test_strings_are_not_ids(name: str) -> None:
    function = getattr(advlib, name)
    message = complaint(lambda: function(R, ["a", "a", "b", "b"]), "group_ids")
    assert "encode_groups" in message


@grouped
def test_floats_are_not_ids(name: str) -> None:
    function = getattr(advlib, name)
    complaint(lambda: function(R, np.array([0.0, 0.0, 1.0, 1.0])), "group_ids")


def test_a_nan_id_is_a_missing_id() -> None:
    complaint(lambda: advlib.group_mean(R, np.array([np.nan, np.nan, 1.0, 1.0])), "group_ids")
    complaint(lambda: advlib.encode_groups([float("nan"), float("nan"), 1.0]), "missing", "0")
    complaint(lambda: advlib.encode_groups([1, None, 1]), "missing", "1")


@grouped
def test_a_shape_mismatch_names_both_shapes(name: str) -> None:
    function = getattr(advlib, name)
    complaint(lambda: function(R, IDS[:3]), "group_ids", "(4,)", "(3,)")
    complaint(lambda: function(R, IDS, where=np.ones(5, bool)), "where", "(4,)", "(5,)")
    jitted = jax.jit(function)
    complaint(lambda: jitted(R, IDS[:3]), "group_ids", "(4,)", "(3,)")


@grouped
def test_a_batch_is_flat(name: str) -> None:
    function = getattr(advlib, name)
    complaint(lambda: function(R.reshape(2, 2), IDS.reshape(2, 2)), "rewards", "(2, 2)")
    complaint(lambda: function(np.float32(1.0), np.int32(0)), "rewards", "()")


@grouped
@pytest.mark.parametrize("where", [[1.0, 0.5, 1.0, 1.0], [1, 1, 2, 1], [1, 1, 1, -1], ["a"] * 4])
def test_where_is_boolean(name: str, where: Any) -> None:
    complaint(lambda: getattr(advlib, name)(R, IDS, where=where), "where")


@grouped
def test_where_may_be_written_in_numbers(name: str) -> None:
    function = getattr(advlib, name)
    wanted = np.asarray(function(R, IDS, where=np.array([True, True, True, False])))
    for dtype in (np.float32, np.int64):
        got = function(R, IDS, where=np.array([1, 1, 1, 0], dtype))
        np.testing.assert_array_equal(got, wanted)


@grouped
@pytest.mark.parametrize("num_groups", [2.0, "2", -1])
def test_num_groups_is_a_python_integer(name: str, num_groups: Any) -> None:
    complaint(lambda: getattr(advlib, name)(R, IDS, num_groups=num_groups), "num_groups")


def test_num_groups_is_static() -> None:
    traced = jax.jit(lambda r, g, n: advlib.group_mean(r, g, num_groups=n))
    complaint(lambda: traced(R, IDS, 2), "num_groups")


def test_too_few_groups_is_an_id_out_of_range() -> None:
    complaint(lambda: advlib.group_mean(R, IDS, num_groups=1), "group_ids", "1")


def test_unknown_words_list_the_known_ones() -> None:
    complaint(lambda: advlib.group_mean(R, IDS, fallback="mean"), "fallback", "zero", "raw")
    complaint(lambda: advlib.grpo(R, IDS, scale="global"), "scale", "group", "batch")
    complaint(lambda: advlib.batch_mean(R, fallback="batch_mean"), "fallback", "zero", "raw")
    tiers = np.zeros(4, np.int32)
    complaint(lambda: advlib.gar(R, tiers, IDS, statistics="rows"), "statistics", "traces")


@pytest.mark.parametrize("f_min", [-0.1, 1.5])
def test_f_min_is_a_share(f_min: float) -> None:
    complaint(lambda: advlib.gar(R, np.zeros(4, np.int32), IDS, f_min=f_min), "f_min")


def test_lambda_max_is_at_least_one() -> None:
    complaint(lambda: advlib.gar(R, np.zeros(4, np.int32), IDS, lambda_max=0.9), "lambda_max")


def test_rank_inputs_are_checked() -> None:
    tiers = np.array([0, 1, 0, 1], np.int32)
    complaint(lambda: advlib.rank_margin(tiers.astype(np.float32), np.ones((2, 1)), IDS), "tiers")
    complaint(
        lambda: advlib.rank_margin(tiers, np.ones((3, 1), np.float32), IDS, num_groups=2),
        "margins",
        "(3, 1)",
    )
    complaint(
        lambda: advlib.rank_margin(tiers, np.ones((2, 0), np.float32), IDS, num_groups=2), "tiers"
    )
    nan = np.array([[np.nan], [1.0]], np.float32)
    complaint(lambda: advlib.rank_margin(tiers, nan, IDS, num_groups=2), "margins")
    complaint(lambda: advlib.win_rate(tiers, IDS, hacks=np.full(4, 0.5), num_groups=2), "hacks")
    complaint(lambda: advlib.win_rate(tiers, IDS, hacks=np.zeros(3, bool)), "hacks", "(3,)")


def test_gae_inputs_are_checked() -> None:
    r, v = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    complaint(lambda: advlib.gae(r, v[:, :2]), "values", "(2, 3)", "(2, 2)")
    complaint(lambda: advlib.gae(r, v, mask=np.ones((2, 2), bool)), "mask", "(2, 2)")
    complaint(lambda: advlib.gae(np.float32(1.0), np.float32(1.0)), "rewards")
    message = complaint(lambda: advlib.broadcast_to_tokens(R, np.ones((3, 5), bool)), "(4,)")
    assert "(3, 5)" in message


def test_float64_that_float32_cannot_hold_says_so() -> None:
    lossy = np.array([1e8, 1e8 + 1])
    with pytest.warns(advlib.AdvantageWarning, match=r"float32|float64|x64"):
        advlib.group_mean(lossy, [0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advlib.group_mean(np.array([0.1, 0.85]), [0, 0])
        with jax.enable_x64(True):
            exact = np.asarray(advlib.group_mean(lossy, [0, 0]))
    assert exact.dtype == np.float64
    np.testing.assert_array_equal(exact, [-0.5, 0.5])


@pytest.mark.parametrize("name", ["group_mean", "grpo", "leave_one_out", "max_rl"])
def test_a_batch_of_singletons_says_so(name: str) -> None:
    function = getattr(advlib, name)
    with pytest.warns(advlib.AdvantageWarning):
        got = function([1.0, 0.0, 0.5], [0, 1, 2])
    np.testing.assert_array_equal(got, np.zeros(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function([1.0, 0.0, 0.5], [0, 1, 1])
        jax.jit(function)(jnp.ones(3), jnp.arange(3))


def test_the_warning_is_a_user_warning() -> None:
    assert issubclass(advlib.AdvantageWarning, UserWarning)


@every_row
def test_traced_values_are_not_read_back(row: Row) -> None:
    ids = np.array([0, 1, -3, 99], np.int32)
    rewards = np.array([np.nan, 1.0, 2.0, 3.0], np.float32)
    jax.block_until_ready(jax.jit(lambda b: row.call(advlib, b))(batch(ids=ids, rewards=rewards)))


def test_encode_groups() -> None:
    groups = advlib.encode_groups(["b", "a", "b", "c"])
    assert groups.num_groups == 3
    assert groups.ids.dtype == np.int32
    assert [groups.keys[i] for i in groups.ids] == ["b", "a", "b", "c"]
    pairs = advlib.encode_groups([("x", 0), ("x", 0), ("y", 0)])
    assert pairs.num_groups == 2
    assert pairs.ids[0] == pairs.ids[1] != pairs.ids[2]
    assert advlib.encode_groups([]).num_groups == 0
    ints = advlib.encode_groups(np.array([7, 7, -2]))
    assert ints.num_groups == 2
    assert ints.ids[0] == ints.ids[1] != ints.ids[2]


def test_encode_groups_refuses_what_is_no_key() -> None:
    complaint(lambda: advlib.encode_groups([["a"], ["b"]]), "0", "list")
    complaint(lambda: advlib.encode_groups("ab"), "keys")
