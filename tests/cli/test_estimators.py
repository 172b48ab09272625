from __future__ import annotations

import numpy as np
import pytest

from advlib.cli._errors import Refusal
from advlib.cli._estimators import ESTIMATORS, advantages, baselines
from advlib.cli._samples import Samples, samples
from tests.cli.made import table_of


def made(rewards, groups, **columns) -> Samples:
    rows = [{"reward": r, "group": g} for r, g in zip(rewards, groups, strict=True)]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return samples(table_of(rows))


def scored(name: str, data: Samples, **options) -> np.ndarray:
    return advantages(name, data, options)


def base(name: str, data: Samples, **options) -> np.ndarray:
    return baselines(name, data, options, scored(name, data, **options))


# One of four; then two rows, of which one is masked and carries a placeholder of 1.
DATA = made(
    [1.0, 0.0, 0.0, 0.0, 0.5, 1.0],
    "aaaabb",
    invalid_reason=[None, None, None, None, None, "masked"],
)


@pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")
@pytest.mark.parametrize(
    ("name", "right", "baseline"),
    [
        ("group_mean", [0.75, -0.25, -0.25, -0.25, 0, 0], [0.25] * 4 + [None, None]),
        ("grpo", [1.5, -0.5, -0.5, -0.5, 0, 0], [0.25] * 4 + [None, None]),
        ("leave_one_out", [1, -1 / 3, -1 / 3, -1 / 3, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3, None, None]),
        ("max_rl", [3, -1, -1, -1, 0, 0], [0.25] * 4 + [None, None]),
        ("batch_mean", [0.7, -0.3, -0.3, -0.3, 0.2, 0], [0.3] * 5 + [None]),
        (
            "batch_leave_one_out",
            [0.875, -0.375, -0.375, -0.375, 0.25, 0],
            [0.125, 0.375, 0.375, 0.375, 0.25, None],
        ),
    ],
)
def test_numbers_by_hand(name, right, baseline):
    options = {"eps": 0.0} if name == "grpo" else {}
    np.testing.assert_allclose(scored(name, DATA, **options), right, atol=1e-12)
    wanted = np.array([np.nan if b is None else b for b in baseline])
    np.testing.assert_allclose(base(name, DATA, **options), wanted, atol=1e-12)


def test_a_lone_sample_has_the_baseline_of_its_fallback():
    assert np.isnan(base("group_mean", DATA, fallback="raw")[4])
    assert base("group_mean", DATA, fallback="batch_mean")[4] == pytest.approx(0.3)
    assert base("leave_one_out", DATA, fallback="batch_leave_one_out")[4] == pytest.approx(0.25)
    assert base("grpo", DATA, fallback="batch_mean")[4] == pytest.approx(0.3)
    assert scored("group_mean", DATA, fallback="raw")[4] == 0.5


def test_a_normalized_advantage_keeps_the_baseline_of_the_plain_one():
    np.testing.assert_array_equal(
        base("leave_one_out", DATA, normalize=True)[:4], base("leave_one_out", DATA)[:4]
    )


@pytest.mark.parametrize("name", ["gar", "rank_margin"])
def test_no_baseline_where_the_advantage_is_no_difference_of_rewards(name):
    data = made([1.0, 0.0], "aa", tier=[0, 1], margins=[[0.5], [0.5]])
    assert np.isnan(base(name, data)).all()


def test_float64_of_a_file_stays_float64():
    data = made([1e8, 1e8 + 1], "aa")
    np.testing.assert_array_equal(scored("group_mean", data), [-0.5, 0.5])


def test_enabling_float64_is_undone():
    import jax.numpy as jnp

    scored("group_mean", DATA)
    assert jnp.zeros(1).dtype == jnp.float32


def test_gar_reads_tiers_and_confirmed_hacks():
    data = made(
        [1.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        "aaaaaa",
        tier=[0, 1, 1, None, None, None],
        hack=["none", "none", "suspected", "confirmed", None, None],
    )
    right = [2 / 3, 5 / 12, 5 / 12, -0.5, -0.5, -0.5]
    np.testing.assert_allclose(scored("gar", data), right, atol=1e-12)


def test_traces_of_one_episode_are_one_candidate():
    data = made(
        [1.0, 1.0, 1.0, 0.0, 0.0],
        "aaaaa",
        tier=[0, 0, 1, None, None],
        episode_id=["a", "a", None, "c", "c"],
    )
    by_trace = scored("gar", data)
    np.testing.assert_allclose(by_trace, [0.48, 0.48, 0.24, -0.6, -0.6], atol=1e-12)
    by_candidate = scored("gar", data, statistics="candidates")
    np.testing.assert_allclose(by_candidate, [4 / 9, 4 / 9, 2 / 9, -2 / 3, -2 / 3])


class TestMargins:
    def test_gaps_of_each_group_and_slight_where_the_list_is_empty(self):
        data = made(
            [0.0] * 5,
            "aabba",
            tier=[0, 1, 0, 1, 2],
            margins=[[0.5, 1.0], [0.5, 1.0], [], [], [0.5, 1.0]],
        )
        right = [2 / 3, 1 / 6, 0.125, -0.125, -5 / 6]
        np.testing.assert_allclose(scored("rank_margin", data), right, atol=1e-12)

    def test_none_at_all_is_refused(self):
        data = made([0.0, 1.0], "aa", tier=[0, 1])
        with pytest.raises(Refusal, match="margins is null in every row of group 'a'"):
            scored("rank_margin", data)

    def test_too_few_are_refused(self):
        data = made([0.0, 1.0], "aa", tier=[0, 2], margins=[[0.5], [0.5]])
        with pytest.raises(Refusal, match="3 tiers and so 2 gaps"):
            scored("rank_margin", data)

    def test_two_lists_in_one_group_are_refused(self):
        data = made([0.0, 1.0], "aa", tier=[0, 1], margins=[[0.5], [0.25]])
        with pytest.raises(Refusal, match=r"different margins.*at made.jsonl:2"):
            scored("rank_margin", data)


@pytest.mark.parametrize("name", [n for n, e in ESTIMATORS.items() if e.needs])
def test_an_estimator_says_which_column_it_misses(name):
    with pytest.raises(Refusal, match=rf"{name} needs a grader's tiers, and tier is null"):
        scored(name, DATA)


def test_a_value_that_the_core_refuses_is_a_refusal():
    with pytest.raises(Refusal, match="ddof"):
        scored("grpo", DATA, ddof=3)
