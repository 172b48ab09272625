"""The worked examples of the aggregate metrics, by their numbers."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from advlib.diagnostics import aggregate, pass_at_k, performance_summary, progress_metrics

M = True
COVERAGE = ("measured_rollouts", "masked_rollouts", "measured_tasks", "fully_masked_tasks")


def found(*rows, **columns):
    """Rows of (task, rollout, reward[, masked]), and further columns."""
    rewards = [row[2] for row in rows]
    masked = [len(row) > 3 for row in rows]
    return aggregate(
        [row[0] for row in rows],
        [row[1] for row in rows],
        masked,
        {"reward": rewards, **columns},
    )


def covered(metrics):
    return tuple(metrics[f"coverage/{name}"] for name in COVERAGE)


def reward(metrics):
    return tuple(metrics[f"{what}/reward"] for what in ("mean", "max", "min", "median", "std"))


class TestExamples:
    def test_1_one_measured_one_masked(self):
        a = found((0, 0, 1.0), (0, 1, 0.0, M))
        assert reward(a.metrics) == (1, 1, 1, 1, 0)
        assert covered(a.metrics) == covered(a.key_metrics) == (1, 1, 1, 0)
        assert a.num_repeats == 2
        [group] = a.groups
        assert group["num_rollouts"] == group["expected_num_rollouts"] == 1
        assert group["missing_num_rollouts"] == 0
        assert a.repeats == []

    def test_2_nothing_masked_has_no_coverage_keys(self):
        a = found((0, 0, 1.0), (0, 1, 0.0))
        assert reward(a.metrics) == pytest.approx((0.5, 1, 0, 0.5, 0.707107), abs=1e-6)
        assert a.key_metrics == {"mean/reward": 0.5}
        assert not any(name.startswith("coverage/") for name in a.metrics)

    def test_3_all_masked_has_no_mean(self):
        a = found((0, 0, 0.0, M), (1, 0, 0.0, M))
        wanted = dict(zip([f"coverage/{name}" for name in COVERAGE], (0, 2, 0, 2), strict=True))
        assert a.metrics == a.key_metrics == wanted
        assert a.groups == a.repeats == []
        assert a.num_repeats is None

    def test_4_a_fully_masked_task(self):
        a = found((0, 0, 1.0), (0, 1, 0.5), (1, 0, 0.0, M), (1, 1, 0.0, M))
        assert a.metrics["mean/reward"] == 0.75
        assert a.metrics["std/reward"] == pytest.approx(0.353553, abs=1e-6)
        assert a.metrics["min/reward"] == 0.5
        assert covered(a.metrics) == (2, 2, 1, 1)
        assert [group["task"] for group in a.groups] == [0]

    def test_5_repeats(self):
        a = found((0, 0, 1.0, M), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 1.0))
        assert a.metrics["mean/reward"] == pytest.approx(0.666667, abs=1e-6)
        assert a.metrics["std/reward"] == pytest.approx(0.57735, abs=1e-6)
        assert a.metrics["median/reward"] == 1
        assert covered(a.metrics) == (3, 1, 2, 0)
        assert [group["mean/reward"] for group in a.groups] == [0.0, 1.0]
        first, second = a.repeats
        told = [(r["sample_count"], r["missing_count"], r["mean/reward"]) for r in (first, second)]
        assert told == [(1, 1, 1.0), (2, 0, 0.5)]
        assert first["std/reward"] == 0
        assert "ci_low_95/reward" not in first
        assert a.metrics["mean_across_repeats/mean/reward"] == 0.75

    def test_6_a_masked_row_leaves_every_column(self):
        a = found(
            (0, 0, 1.0),
            (0, 1, 0.0, M),
            ok=[True, False],
            latency_ms=[10, 30],
            total_tokens=[100, 300],
        )
        assert a.metrics["mean/ok"] == 1.0
        assert a.metrics["mean/latency_ms"] == 10
        assert a.metrics["mean/total_tokens"] == 100

    def test_7_pass_at_k(self):
        a = found((0, 0, 1.0), (0, 1, 0.0), (0, 2, 0.0, M), (1, 0, 0.0), (1, 1, 0.0), (1, 2, 1.0))
        assert a.metrics["mean/reward"] == pytest.approx(0.4)
        assert covered(a.metrics) == (5, 1, 2, 0)
        p = pass_at_k([[1, 0], [0, 0, 1]])
        assert p.pass_at == pytest.approx({1: 41.666667, 2: 83.333333, 3: 100}, abs=1e-6)
        assert p.average_of == pytest.approx({1: 50, 2: 25, 3: 41.666667}, abs=1e-6)
        assert p.per_sample == [50, 0, 100]
        assert p.num_tasks == {1: 2, 2: 2, 3: 1}

    def test_8_performance_takes_masked_rows_too(self):
        a = found((0, 0, 1.0), (0, 1, 0.0, M))
        assert a.metrics["mean/reward"] == 1.0
        told = performance_summary(2, [2, 4], [100, 300])
        assert told["mean_num_turns"] == 3
        assert told["total_latency_mean_ms"] == 200
        assert told["overall_observability_coverage"] == 1.0

    @pytest.mark.parametrize(
        ("masked", "unmasked", "total", "failed", "omitted", "wanted"),
        [
            (0, 8, 5, 0, 0, {}),
            (2, 6, 3, 0, 0, {"masked_pct": 25.0, "reward_unmasked": 50.0}),
            (4, 0, 0, 0, 0, {"masked_pct": 100.0}),
            (0, 8, 4, 3, 1, {"reward_unmasked": 50.0, "failed": 3, "omitted": 1}),
            (1, 2, 1, 0, 0, {"masked_pct": 33.33, "reward_unmasked": 50.0}),
            (0, 0, 0, 5, 0, {"failed": 5}),
        ],
    )
    def test_9_progress(self, masked, unmasked, total, failed, omitted, wanted):
        rewards = [0.0] * masked + [1.0] * total + [0.0] * (unmasked - total)
        told = progress_metrics(
            rewards, [True] * masked + [False] * unmasked, failed=failed, omitted=omitted
        )
        assert ("reward" in told) == bool(rewards)
        told.pop("reward", None)
        assert told == wanted

    def test_9_what_the_infrastructure_cost(self):
        told = progress_metrics([0.0] * 5 + [1.0] * 3, [True] * 2 + [False] * 6, remaining=2)
        assert told["reward"] == 37.5
        assert told["reward_unmasked"] - told["reward"] == 12.5
        assert told["reward_lower_bound"] == 30.0

    def test_10_scores_that_are_not_binary(self):
        p = pass_at_k([[0.2, 0.9, 0.5]])
        assert p.pass_at == pytest.approx({1: 20, 2: 90, 3: 90})
        assert p.average_of[3] == pytest.approx(53.333333, abs=1e-6)


class TestRules:
    def test_nothing_at_all(self):
        assert aggregate([], [], [], {"reward": []}) == ({}, {}, [], [], None)

    def test_missing_cells_are_skipped_column_by_column(self):
        a = found((0, 0, 1.0), (1, 0, 0.0), (2, 0, 1.0), x=[None, 3.0, None], y=[np.nan] * 3)
        assert a.metrics["mean/x"] == 3.0
        assert "std/x" not in a.metrics  # undefined beside one that is defined
        assert not any(name.endswith("/y") for name in a.metrics)

    def test_where_every_deviation_is_undefined_complete_columns_have_zero(self):
        a = aggregate([0, 1], [0, 0], [False, True], {"reward": [1.0, 0.0], "x": [None, 1.0]})
        assert a.metrics["std/reward"] == 0.0
        [group] = a.groups
        assert group["std/reward"] == 0.0
        assert "std/x" not in group

    def test_a_cell_that_is_alone_among_missing_ones_has_no_deviation(self):
        a = found((0, 0, 1.0), (1, 0, None), x=[None, 2.0])
        assert (a.metrics["mean/reward"], a.metrics["mean/x"]) == (1.0, 2.0)
        assert not any(name.startswith("std/") for name in a.metrics)

    def test_what_was_expected_and_what_is_masked(self):
        a = aggregate(
            [0, 0, 1],
            [0, 1, 0],
            [False, True, False],
            {"reward": [1.0, 0.0, 1.0]},
            expected=[(0, 0), (0, 1), (0, 2), (1, 0)],
        )
        first, second = a.groups
        assert (first["num_rollouts"], first["expected_num_rollouts"]) == (1, 2)
        assert (first["missing_num_rollouts"], first["reward_profile_completion_pct"]) == (1, 50)
        assert second["missing_num_rollouts"] == 0
        info = {"rollout_id": "0:0", "task": 0, "rollout_index": 0, "reward": 1.0}
        assert first["rollout_infos"] == [info]

    def test_statistics_of_each_task_are_those_of_its_rows(self):
        rng = np.random.default_rng(3)
        rows = [(t, r, rng.random()) for t in (7, "b", 3) for r in rng.permutation(5)]
        x = np.where(rng.random(15) < 0.6, np.nan, rng.random(15))
        a = found(*rows, x=x, y=[np.nan] * 15)
        assert [group["task"] for group in a.groups] == [7, "b", 3]
        for nth, group in enumerate(a.groups):
            part = slice(5 * nth, 5 * nth + 5)
            assert [info["rollout_index"] for info in group["rollout_infos"]] == [0, 1, 2, 3, 4]
            for name, cell in (("reward", [row[2] for row in rows[part]]), ("x", x[part])):
                known = np.array(cell)[~np.isnan(cell)]
                wanted = {"mean": np.mean, "max": np.max, "min": np.min, "median": np.median}
                told = {what: group.get(f"{what}/{name}") for what in wanted}
                assert told == {
                    what: pytest.approx(of(known)) if len(known) else None
                    for what, of in wanted.items()
                }
                if len(known) > 1:
                    assert group[f"std/{name}"] == pytest.approx(known.std(ddof=1))
                else:
                    assert f"std/{name}" not in group

    def test_range_across_repeats_and_a_column_that_one_of_them_has(self):
        a = found((0, 0, 1.0), (1, 0, 0.0), (0, 1, 1.0), (1, 1, 1.0), x=[None, None, 2.0, 4.0])
        across = {name: a.metrics[f"{name}_across_repeats/mean/reward"] for name in ("min", "max")}
        assert across == {"min": 0.5, "max": 1.0}
        assert a.metrics["mean_across_repeats/mean/x"] == 3.0
        assert a.metrics["std_across_repeats/mean/x"] == 0.0
        assert "ci_low_95_across_repeats/mean/x" not in a.metrics

    def test_intervals_of_repeats_are_students(self):
        from scipy import stats

        rewards = np.random.default_rng(1).random((3, 5))
        rows = [(t, r, rewards[r, t]) for r in range(3) for t in range(5)]
        a = found(*rows)
        low, high = stats.t.interval(0.95, 4, rewards[0].mean(), stats.sem(rewards[0]))
        assert a.repeats[0]["ci_low_95/reward"] == pytest.approx(low)
        assert a.repeats[0]["ci_high_95/reward"] == pytest.approx(high)
        across = rewards.mean(1)
        low, high = stats.t.interval(0.95, 2, across.mean(), stats.sem(across))
        assert a.metrics["ci_low_95_across_repeats/mean/reward"] == pytest.approx(low)
        assert a.metrics["se_across_repeats/mean/reward"] == pytest.approx(stats.sem(across))
        assert a.metrics["std_across_repeats/mean/reward"] == pytest.approx(across.std(ddof=1))
        assert a.repeats[1]["p25/reward"] == pytest.approx(np.quantile(rewards[1], 0.25))

    def test_only_means_of_the_run_are_headlines(self):
        a = found((0, 0, 1.0), (0, 1, 0.0), x=[1, 2])
        assert set(a.key_metrics) == {"mean/reward", "mean/x"}

    @pytest.mark.parametrize(
        ("rows", "columns", "error", "told"),
        [
            ([(0, 0, 1.0), (0, 0, 0.0)], {}, ValueError, "two rollouts with the index 0"),
            ([(0, 0, 1.0)], {"x": [1, 2]}, ValueError, "must have 1 entries"),
            ([(0, 0, 1.0)], {"x": ["1"]}, TypeError, "must be numbers"),
        ],
    )
    def test_bad_input(self, rows, columns, error, told):
        with pytest.raises(error, match=told):
            found(*rows, **columns)


class TestPassAtK:
    @pytest.mark.parametrize(("wrong", "many"), [(0, 4), (3, 7), (7, 7), (490, 500)])
    def test_the_product_is_the_binomials(self, wrong, many):
        p = pass_at_k([[0] * wrong + [1] * (many - wrong)])
        for k in (1, 2, 3, many // 2, many):
            exact = 1 - Fraction(comb(wrong, k), comb(many, k))
            assert p.pass_at[k] == pytest.approx(100 * float(exact), abs=1e-9)

    def test_ten_thousand_rollouts_do_not_overflow(self):
        p = pass_at_k([[True] * 10 + [False] * 9_990], ks=[1, 10_000, 5_000])
        assert p.pass_at[1] == pytest.approx(0.1)
        assert p.pass_at[10_000] == 100
        assert p.pass_at[5_000] == pytest.approx(100 * (1 - 0.5**10), abs=0.01)

    def test_majority(self):
        scores = [[0, 1, 0], [1, 0], [0, 0]]
        answers = [["a", "b", "a"], ["x", "y"], [None, None]]
        p = pass_at_k(scores, answers=answers)
        # k=1: a is wrong, x is right, nobody; k=2: both ties share; k=3: a wins
        assert p.majority_at[1] == pytest.approx(100 / 3)
        assert p.majority_at[2] == pytest.approx(100 * (0.5 + 0.5 + 0) / 3)
        assert p.majority_at[3] == pytest.approx(100 * (0 + 0.5 + 0) / 3)

    def test_spread_across_runs(self):
        p = pass_at_k([[1, 0], [0, 1], [1, 1]])
        runs = np.array([200 / 3, 200 / 3])
        assert p.std_dev_across_runs == {2: pytest.approx(runs.std(ddof=1))}
        assert p.std_err_across_runs == {2: pytest.approx(0)}
        assert p.avg_sample_std_dev == {2: pytest.approx(2 * 0.5**0.5 / 3)}

    def test_no_task(self):
        assert pass_at_k([]).pass_at == {}
        assert pass_at_k([[], []]).per_sample == []

    @pytest.mark.parametrize(
        ("scores", "more", "told"),
        [
            ([[np.nan]], {}, "finite"),
            ([[1]], {"ks": [0]}, "at least 1"),
            ([[1]], {"answers": [[]]}, "one entry a score"),
        ],
    )
    def test_bad_input(self, scores, more, told):
        with pytest.raises(ValueError, match=told):
            pass_at_k(scores, **more)


def test_performance_is_what_nemo_gym_makes_of_it():
    told = performance_summary(
        4,
        [2, 4, 0],
        [100, 200, None],
        tokens={
            "prompt_tokens": [100, 300, None],
            "completion_tokens": [20, 60, 10],
            "reasoning_tokens": [None] * 3,
        },
        token_coverage=[1.0, 0.0, None],
    )
    assert told == pytest.approx(
        {
            "overall_observability_coverage": 0.75,
            "token_observability_coverage": 0.25,
            "mean_prompt_tokens": 200,
            "median_prompt_tokens": 200,
            "total_prompt_tokens": 400,
            "mean_completion_tokens": 30,
            "median_completion_tokens": 20,
            "total_completion_tokens": 90,
            "mean_tokens_per_turn": 12.5,  # 20/2 and 60/4; without a turn there is no ratio
            "median_tokens_per_turn": 12.5,
            "mean_num_turns": 2,
            "median_num_turns": 2,
            "std_num_turns": (8 / 3) ** 0.5,  # divided by n
            "min_num_turns": 0,
            "max_num_turns": 4,
            "p90_num_turns": 3.6,
            "total_latency_mean_ms": 150,
            "total_latency_p50_ms": 150,
            "total_latency_p90_ms": 190,
            "total_latency_p99_ms": 199,
        }
    )
    with pytest.raises(ValueError, match=r"must be among .*; got 'words'"):
        performance_summary(1, [1], [1], tokens={"words": [1]})
    with pytest.raises(ValueError, match="one length"):
        performance_summary(2, [1], [1], token_coverage=[1, 1])


def test_performance_of_what_reports_nothing():
    assert performance_summary(3, [], []) is None
    told = performance_summary(4, [2.0], [None])
    assert told["overall_observability_coverage"] == 0.25
    assert "total_latency_mean_ms" not in told
    with pytest.raises(ValueError, match="at most 1"):
        performance_summary(1, [1, 2], [1, 2])


def test_a_task_of_many_rollouts_beside_many_tasks_is_quick():
    p = pass_at_k([[1] * 100_000, *([0, 1] for _ in range(5_000))], ks=[1, 2])
    assert p.per_sample[0] == pytest.approx(100 / 5_001)
    assert p.per_sample[1] == p.per_sample[-1] == 100


def test_groups_and_repeats_on_request():
    columns = {"reward": [1.0, 0.0]}
    a = aggregate([0, 0], [0, 1], [False, False], columns, groups=False, repeats=False)
    assert a.groups == a.repeats == []
    assert a.metrics["mean/reward"] == 0.5
    assert "mean_across_repeats/mean/reward" not in a.metrics
    assert a.num_repeats == 2
