from __future__ import annotations

import numpy as np
import pytest

from advlib.cli._errors import Refusal
from advlib.cli._policy import policy
from advlib.cli._samples import samples
from tests.cli.made import table_of


def test_a_row_that_is_not_valid_says_why():
    data = samples(table_of([{"reward": 1.0}, {"reward": 0.0, "invalid_reason": "masked"}]))
    assert data.valid.tolist() == [True, False]
    assert data.reasons == [None, "masked"]


def test_a_missing_reward_is_nan_and_never_zero():
    data = samples(table_of([{"reward": None, "invalid_reason": "missing_reward"}]))
    assert np.isnan(data.rewards[0])
    assert not data.valid[0]


def test_a_table_that_calls_a_missing_reward_valid_is_not_believed():
    data = samples(table_of([{"reward": None}, {"reward": float("inf")}, {"reward": 1.0}]))
    assert data.reasons == ["missing_reward", "infinite_reward", None]
    assert data.valid.tolist() == [False, False, True]


def test_groups_may_be_named_by_several_columns():
    rows = [
        {"group": "g", "step": 1},
        {"group": "g", "step": 2},
        {"group": "h", "step": 1},
        {"group": "g", "step": 1},
    ]
    data = samples(table_of(rows), group_by=("group", "step"))
    assert data.group_ids.tolist() == [0, 1, 2, 0]
    assert data.group_name(1) == "g · 2"


@pytest.mark.parametrize("name", ["tasks", "reward_components", ""])
def test_grouping_by_what_is_no_column_is_refused(name):
    with pytest.raises(Refusal, match="--group-by"):
        samples(table_of([{}]), group_by=(name,))


def test_br_21_a_null_group_key_is_an_error_that_names_the_row():
    with pytest.raises(Refusal, match=r"step: null in 1 row of 2, first at made.jsonl:2"):
        samples(table_of([{"step": 1}, {"step": None}]), group_by=("step",))


def test_a_named_component_takes_the_place_of_the_reward():
    rows = [
        {"reward": 9.0, "reward_components": [("style", 0.5), ("right", 1.0)]},
        {"reward": 9.0, "reward_components": [("style", None), ("right", 1.0)]},
        {"reward": 9.0, "reward_components": [("right", 1.0)]},
        {"reward": 9.0, "reward_components": None},
    ]
    data = samples(table_of(rows), reward="style")
    assert data.rewards[0] == 0.5
    assert data.valid.tolist() == [True, False, False, False]
    assert data.reasons[1:] == ["missing_reward"] * 3


def test_a_component_does_not_make_a_masked_row_usable():
    rows = [{"invalid_reason": "masked", "reward_components": [("style", 0.5)]}]
    data = samples(table_of(rows), reward="style")
    assert data.reasons == ["masked"]


def test_a_column_of_numbers_can_be_the_reward():
    data = samples(
        table_of([{"response_length": 7}, {"response_length": None}]), reward="response_length"
    )
    assert data.rewards[0] == 7.0
    assert data.reasons == [None, "missing_reward"]


@pytest.mark.parametrize(
    ("column", "value", "number"), [("truncated", True, 1.0), ("step", 2**53 + 1, 2.0**53)]
)
def test_booleans_and_large_integers_are_numbers_too(column, value, number):
    assert samples(table_of([{column: value}]), reward=column).rewards.tolist() == [number]


def test_an_unknown_reward_names_the_nearest_and_all():
    table = table_of([{"reward_components": [("correct", 1.0)]}])
    with pytest.raises(
        Refusal, match=r"'corect' is not known. Did you mean correct\?.*response_length"
    ):
        samples(table, reward="corect")


class TestCountAsZero:
    ROWS = (
        {"reward": 1.0},
        {"reward": 0.5, "invalid_reason": "masked", "failure_kind": "judge_failed"},
        {"reward": 0.5, "invalid_reason": "masked"},
        {"reward": 0.5, "failure_kind": "judge_failed"},
        {"reward": 0.5, "invalid_reason": "not_trainable"},
    )

    def test_of_a_failure_kind_valid_rows_too(self):
        data = samples(table_of(self.ROWS), policy=policy((), ["judge_failed"]))
        assert data.valid.tolist() == [True, True, False, True, False]
        assert data.rewards.tolist() == [1.0, 0.0, 0.5, 0.0, 0.5]
        assert data.reasons[1] == data.reasons[3] == "counted as zero: judge_failed"
        assert data.counted == {"judge_failed": 2}

    def test_of_a_reason(self):
        data = samples(table_of(self.ROWS), policy=policy((), ["masked"]))
        assert data.valid.tolist() == [True, True, True, True, False]
        assert data.counted == {"masked": 2}

    def test_of_nothing_by_default(self):
        assert samples(table_of(self.ROWS)).counted == {}

    def test_a_rollout_of_another_policy_is_refused(self):
        with pytest.raises(Refusal, match="not a sample of the policy"):
            samples(table_of(self.ROWS), policy=policy((), ["not_trainable"]))
