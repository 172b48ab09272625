from __future__ import annotations

import numpy as np
import pytest

from advlib.diagnostics import FailurePolicy, apply_failure_policy

#          good  masked     judge     unparsed  good  nothing
REASONS = [None, "masked", "masked", None, None, "missing_reward"]
KINDS = [None, "session_lost", "judge_failed", "judge_unparseable", None, None]
REWARDS = [1.0, 0.5, 0.0, 0.0, 0.25, np.nan]
GROUPS = [0, 0, 1, 1, 2, 2]


def ruled(policy: FailurePolicy, **more):
    return apply_failure_policy(REWARDS, REASONS, policy, labels=(KINDS,), group_ids=GROUPS, **more)


def test_by_default_the_file_decides():
    found = ruled(FailurePolicy())
    assert found.valid.tolist() == [True, False, False, True, True, False]
    assert found.reasons == REASONS
    assert found.rows == {}
    np.testing.assert_array_equal(found.rewards, REWARDS)


def test_a_kind_counts_as_zero():
    found = ruled(FailurePolicy({"session_lost": "zero"}))
    assert found.valid.tolist() == [True, True, False, True, True, False]
    assert found.rewards[1] == 0.0
    assert found.reasons[1] == "counted as zero: session_lost"
    assert found.rows == {"session_lost": 1}


def test_a_reason_counts_as_zero_where_no_kind_decides_first():
    found = ruled(FailurePolicy({"masked": "zero", "judge_failed": "mask"}))
    assert found.valid.tolist() == [True, True, False, True, True, False]
    assert found.reasons[1:3] == ["counted as zero: masked", "masked"]
    assert found.rows == {"masked": 1, "judge_failed": 1}


def test_a_named_kind_applies_to_rows_that_the_file_did_not_mask():
    found = ruled(FailurePolicy({"judge_unparseable": "mask"}))
    assert not found.valid[3]
    assert found.reasons[3] == "masked_by_policy"


@pytest.mark.parametrize("default", ["zero", "drop_group"])
def test_the_default_never_applies_to_them(default):
    reasons = [None, None]
    found = apply_failure_policy(
        [1.0, 0.0],
        reasons,
        FailurePolicy(default=default),
        labels=([None, "judge_unparseable"],),
        group_ids=[0, 0],
    )
    assert found.reasons == reasons
    assert found.rewards.tolist() == [1.0, 0.0]
    assert found.rows == {"*": 0}


def test_the_default_counts_every_masked_row_that_no_name_decides():
    found = ruled(FailurePolicy({"judge_failed": "mask"}, "zero"))
    assert found.valid.tolist() == [True, True, False, True, True, True]
    assert found.reasons[1] == "counted as zero: session_lost"
    assert found.reasons[5] == "counted as zero: missing_reward"
    assert found.rows == {"judge_failed": 1, "*": 2}


def test_a_whole_group_leaves():
    found = ruled(FailurePolicy({"judge_failed": "drop_group"}))
    assert found.reasons[2:4] == ["dropped_group"] * 2
    assert found.valid.tolist() == [True, False, False, False, True, False]
    assert found.rows == {"judge_failed": 1}


def test_a_group_leaves_for_a_row_that_the_file_did_not_mask():
    found = ruled(FailurePolicy({"judge_unparseable": "drop_group"}))
    assert found.reasons[2:4] == ["dropped_group"] * 2


def test_dropping_wins_over_counting():
    found = ruled(FailurePolicy({"judge_failed": "zero", "judge_unparseable": "drop_group"}))
    assert found.reasons[2:4] == ["dropped_group"] * 2
    assert not found.valid[2:4].any()


def test_the_first_label_decides():
    found = apply_failure_policy(
        [0.5],
        ["masked"],
        FailurePolicy({"fine": "zero", "coarse": "drop_group"}),
        labels=(["fine"], ["coarse"]),
        group_ids=[0],
    )
    assert found.reasons == ["counted as zero: fine"]


def test_exempt_rows_stay():
    found = apply_failure_policy(
        [0.5, 1.0, 1.0],
        ["not_trainable", "masked", None],
        FailurePolicy({"x": "zero"}, "drop_group"),
        labels=(["x", None, None],),
        group_ids=[0, 0, 0],
        exempt=("not_trainable",),
    )
    assert found.reasons == ["not_trainable", "dropped_group", "dropped_group"]


def test_what_was_counted_before_still_counts():
    reasons = ["counted as zero: judge_failed"]
    assert apply_failure_policy([0.0], reasons, FailurePolicy()).valid.tolist() == [True]
    found = apply_failure_policy([0.0], reasons, FailurePolicy(default="drop_group"), group_ids=[0])
    assert found.reasons == reasons
    again = apply_failure_policy(
        [0.0], reasons, FailurePolicy({"judge_failed": "mask"}), labels=(["judge_failed"],)
    )
    assert again.reasons == ["masked_by_policy"]


def test_a_kind_that_no_row_has_is_told():
    assert ruled(FailurePolicy({"cancelled": "zero"})).rows == {"cancelled": 0}


def test_inputs_are_not_changed():
    rewards, reasons = np.array(REWARDS), list(REASONS)
    policy = FailurePolicy(default="zero")
    apply_failure_policy(rewards, reasons, policy, labels=(KINDS,))
    np.testing.assert_array_equal(rewards, REWARDS)
    assert reasons == REASONS


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policy": FailurePolicy({"x": "ignore"})}, "x='ignore'"),
        ({"policy": FailurePolicy(default="skip")}, r"\*='skip'"),
        ({"reasons": [None]}, "lengths 1, 6"),
        ({"labels": ([None],)}, "lengths 6, 1"),
        ({"policy": FailurePolicy({"judge_failed": "drop_group"})}, "without group_ids"),
        (
            {"policy": FailurePolicy({"judge_failed": "drop_group"}), "group_ids": [0]},
            "same length",
        ),
    ],
)
def test_bad_input(change, told):
    given = {"rewards": REWARDS, "reasons": REASONS, "policy": FailurePolicy(), "labels": (KINDS,)}
    with pytest.raises(ValueError, match=told):
        apply_failure_policy(**(given | change))
