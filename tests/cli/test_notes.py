from __future__ import annotations

import pytest

from advlib.cli._notes import notes
from advlib.cli._policy import policy
from advlib.cli._samples import samples
from tests.cli.made import table_of

SPREAD = ({"reward": 1.0}, {"reward": 0.0})


def told(rows, *, group_size=None, declared=None, group_by=("group",), zero=(), **options):
    data = samples(table_of(rows, group_size=declared), group_by=group_by, policy=policy((), zero))
    return notes(data, group_by=group_by, group_size=group_size, **options)


def test_nothing_to_say():
    assert told(SPREAD, estimator="group_mean") == []


def test_br_03_groups_of_one():
    rows = [{"reward": 1.0, "group": "a", "task": "a"}, {"reward": 0.0, "group": "b", "task": "b"}]
    [note] = told(rows, estimator="leave_one_out")
    assert "no group has two valid rollouts" in note
    assert "every advantage is 0" in note
    assert "--fallback batch_leave_one_out" in note
    assert "--group-by" not in note
    assert told(rows, estimator="leave_one_out", fallback="batch_leave_one_out") == []
    assert told(rows, estimator="batch_mean") == []


def test_br_18_group_ids_that_are_rollout_ids():
    rows = [{"reward": r, "group": f"u{i}"} for i, r in enumerate((1.0, 0.0, 1.0, 0.0))]
    [note] = told(rows, estimator="group_mean")
    assert "--group-by environment,task puts rollouts of one task together" in note
    assert told(rows, estimator="group_mean", group_by=("environment", "task")) == []


def test_an_estimator_without_a_fallback_is_not_offered_one():
    rows = [
        {"group": "a", "task": "a", "tier": 0},
        {"group": "b", "task": "b", "tier": 0, "reward": 1.0},
    ]
    [note] = told(rows, estimator="rank_margin")
    assert note.endswith("so every advantage is 0")


def test_br_22_a_declared_group_size():
    rows = [{"reward": r, "group": "a"} for r in (1.0, 0.0, 0.0, 0.0)]
    [note] = told(rows, group_size=2)
    assert "1 group of 1 has not the declared 2 rollouts: a has 4; the true counts are used" in note
    assert told(rows, group_size=4) == []


def test_br_22_declared_by_the_file():
    rows = [{"reward": r, "group": g} for r, g in ((1.0, "a"), (0.0, "a"), (0.0, "b"))]
    [note] = told(rows, declared=2)
    assert "declares 2 rollouts a task, and 1 group of 2 in it has another number" in note


def test_br_20_equal_ids_in_two_environments_are_kept_apart_and_told():
    rows = [
        {"reward": r, "environment": e, "task": "0", "group": f"{e}/0"}
        for r, e in ((1.0, "x"), (0.0, "x"), (0.5, "y"), (0.0, "y"))
    ]
    [note] = told(rows, estimator="group_mean")
    assert "1 task id in more than one environment: 0" in note
    [note] = told(rows, estimator="group_mean", group_by=("task",))
    assert "mixes several environments" in note
    assert "--group-by task,environment" in note


@pytest.mark.parametrize(
    ("column", "values", "what"),
    [
        ("policy", ("m", "n"), "policies"),
        ("step", (1, 2), "steps"),
        ("source_file", ("f", "g"), "files"),
    ],
)
def test_groups_that_mix_what_should_not_be_mixed(column, values, what):
    rows = [{"reward": float(i), column: value} for i, value in enumerate(values)]
    [note] = told(rows)
    assert note.startswith(f"1 group of 1 mixes several {what}, such as g")
    assert note.endswith(f"--group-by group,{column}")
    assert not any("mixes" in n for n in told(rows, group_by=("group", column)))


def test_rows_that_do_not_count_mix_nothing():
    rows = [*SPREAD, {"invalid_reason": "failed", "source_file": "sidecar", "policy": "other"}]
    assert told(rows) == []


def test_equal_rewards():
    [note] = told([{"reward": 0.5}, {"reward": 0.5}])
    assert note == "every usable reward is 0.5: there is no signal"


def test_nothing_usable():
    [note] = told([{"invalid_reason": "failed"}, {"invalid_reason": "masked"}], estimator="grpo")
    assert note == "no rollout has a usable reward, so every advantage is 0"


def test_a_kind_that_no_row_has():
    rows = [*SPREAD, {"invalid_reason": "masked", "failure_kind": "judge_failed"}]
    [note] = told(rows, zero=("judge_fail",))
    assert "judge_fail=zero: no row has that failure kind or reason" in note
    assert "judge_failed, masked" in note


def test_groups_without_tiers():
    rows = [
        {"reward": r, "group": g, "tier": t}
        for r, g, t in ((1.0, "a", 0), (0.0, "a", 1), (1.0, "b", None), (0.0, "b", None))
    ]
    [note] = told(rows, estimator="gar")
    assert "1 group of 2 without any tier" in note
