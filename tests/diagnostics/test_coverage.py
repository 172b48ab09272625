from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advlib.diagnostics import clustered_mean, coverage, mask_effect


class TestCoverage:
    def test_every_rollout_is_in_one_place(self):
        found = coverage(
            ["a", "a", "a", "b", "b"],
            [True, False, False, False, True],
            failed=[False, False, True, False, False],
            omitted=[False, False, False, True, False],
            absent={"a": 2},
            unknown={"c": 1},
        )
        assert found[:6] == (8, 2, 1, 1, 3, 1)
        assert found.environments["a"][:6] == (5, 1, 1, 1, 2, 0)
        assert found.environments["b"][:6] == (2, 1, 0, 0, 1, 0)
        assert found.environments["c"][:6] == (1, 0, 0, 0, 0, 1)

    def test_a_failure_that_was_counted_on_purpose_is_measured(self):
        assert coverage(["a"], [True], failed=[True])[:6] == (1, 1, 0, 0, 0, 0)

    def test_nothing(self):
        assert coverage([], []) == (0, 0, 0, 0, 0, 0, {})

    @given(st.lists(st.tuples(st.sampled_from("abc"), *[st.booleans()] * 3), max_size=30))
    def test_it_closes(self, rows):
        columns = list(zip(*rows, strict=True)) if rows else [[]] * 4
        names, valid, failed, omitted = (list(column) for column in columns)
        found = coverage(names, valid, failed=failed, omitted=omitted, unknown={"b": 3})
        for account in (found, *found.environments.values()):
            assert account.expected == sum(account[1:6])
        assert found.expected == len(rows) + 3
        for place in range(6):
            assert found[place] == sum(each[place] for each in found.environments.values())

    @pytest.mark.parametrize(
        "change", [{"failed": [True]}, {"valid": [1, 0]}, {"absent": {"a": -1}}]
    )
    def test_bad_input(self, change):
        with pytest.raises(ValueError):
            coverage(**({"environments": ["a", "a"], "valid": [True, False]} | change))


class TestClusteredMean:
    def test_equal_clusters_are_students_interval_of_their_means(self):
        from scipy import stats

        rng = np.random.default_rng(3)
        table = rng.normal(size=(7, 4)) + rng.normal(size=(7, 1))
        found = clustered_mean(table.ravel(), np.repeat(np.arange(7), 4))
        means = table.mean(1)
        low, high = stats.t.interval(0.95, 6, means.mean(), stats.sem(means))
        assert found.lower == pytest.approx(low)
        assert found.upper == pytest.approx(high)
        assert found.mean == pytest.approx(table.mean())
        assert (found.num_values, found.num_clusters) == (28, 7)

    def test_ragged_clusters_by_hand(self):
        # mean 1/2; S_c - m n_c: 1 - 1.5 and 1 - .5; se² = 2/1 (1/4 + 1/4) / 16
        found = clustered_mean([1, 0, 0, 1], [5, 5, 5, 9])
        assert found.std_error == pytest.approx((2 * 0.5 / 16) ** 0.5)

    def test_it_covers(self):
        rng = np.random.default_rng(0)
        hits = 0
        for _ in range(400):
            rates = rng.beta(2, 3, size=20)
            sizes = rng.integers(1, 9, size=20)
            ids = np.repeat(np.arange(20), sizes)
            found = clustered_mean((rng.random(len(ids)) < rates[ids]).astype(float), ids)
            hits += found.lower <= 0.4 <= found.upper
        assert 0.91 <= hits / 400 <= 0.985

    @pytest.mark.parametrize(
        ("values", "ids", "why"),
        [([], [], "no value"), ([1, 0], [3, 3], "one task"), ([0.1] * 3, [0, 1, 2], "same mean")],
    )
    def test_no_interval_where_there_is_none(self, values, ids, why):
        found = clustered_mean(values, ids)
        assert why in found.no_interval
        assert found.lower is found.upper is found.std_error is None

    @pytest.mark.parametrize(
        ("values", "ids", "more"),
        [([1], [1, 2], {}), ([np.nan], [0], {}), ([1.0], [0], {"confidence": 1})],
    )
    def test_bad_input(self, values, ids, more):
        with pytest.raises(ValueError):
            clustered_mean(values, ids, **more)


class TestMaskEffect:
    def test_by_hand(self):
        # Group 0: 1, .5 and one masked: the mean .75 would be .5. Group 1 has nothing masked.
        found = mask_effect(
            [1.0, 0.5, 7.0, 1.0, 0.0], [0, 0, 0, 1, 1], [True, True, False, True, True]
        )
        assert found == (4, 2, pytest.approx(0.25), pytest.approx(0.25), 0)

    def test_signs_flip(self):
        # Mean 5/6 with 1, 1, .5; with two zeros it is 1/2; .6 of 1, .6 and a zero flips.
        found = mask_effect([1.0, 0.6, np.nan], [0, 0, 0], [True, True, False])
        assert found.sign_flips == 1
        assert found.max_change == pytest.approx(0.8 - 1.6 / 3)

    def test_equal_rewards_get_an_advantage_from_nothing_and_no_sign_flips(self):
        found = mask_effect([0.1] * 3 + [0.0], [0] * 4, [True] * 3 + [False])
        assert found[:2] == (3, 3)
        assert found.sign_flips == 0

    def test_zeros_move_nothing(self):
        assert mask_effect([0.0, 0.0, 1.0], [0, 0, 0], [True, True, False]) == (2, 0, None, None, 0)

    def test_all_masked(self):
        assert mask_effect([np.nan], [0], [False]) == (0, 0, None, None, 0)

    def test_lengths(self):
        with pytest.raises(ValueError, match="same length"):
            mask_effect([1.0], [0, 1], [True, False])
