"""What is done where something failed: one rule for every command, and recorded by each."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from advlib import adapters
from advlib.adapters import schema
from advlib.cli import _output
from advlib.cli._errors import Refusal
from advlib.cli._policy import policy, settings
from advlib.cli._samples import samples
from advlib.diagnostics import _policy as rules
from tests.cli.made import table_of

ORCHARD = Path(str(resources.files("advlib.samples"))) / "orchard_rollouts.jsonl"


class TestWords:
    def test_kinds_and_a_default(self):
        found = policy(["judge_failed=zero", "swe:oom = drop_group", "*=zero"], ["masked"])
        assert found.kinds == {"judge_failed": "zero", "swe:oom": "drop_group", "masked": "zero"}
        assert found.default == "zero"
        assert settings(found) == {**found.kinds, "*": "zero"}

    def test_nothing_said_is_the_files_word(self):
        assert settings(policy()) == {"*": "mask"}

    def test_twice_the_same_is_no_contradiction(self):
        assert policy(["a=zero", "a=zero"], ["a"]).kinds == {"a": "zero"}

    @pytest.mark.parametrize(
        ("on", "zero", "told"),
        [
            (["judge_failed"], [], "wanted KIND=ACTION"),
            (["=zero"], [], "wanted KIND=ACTION"),
            (["a=ignore"], [], "'ignore' is not known"),
            (["a=zero", "a=mask"], [], "contradict"),
            (["a=mask"], ["a"], "--on-failure a=mask and --count-as-zero a contradict"),
            ([], ["*"], r"--on-failure '\*=zero'"),
            (["not_trainable=drop_group"], [], "not a sample of the policy"),
            ([], ["not_trainable"], "not a sample of the policy"),
        ],
    )
    def test_refused(self, on, zero, told):
        with pytest.raises(Refusal, match=told):
            policy(on, zero)


def test_the_tables_words_are_those_of_the_rule():
    assert rules.BY_POLICY == schema.MASKED_BY_POLICY
    assert rules.DROPPED == schema.DROPPED_GROUP


class TestTable:
    def test_a_judge_that_could_not_be_read_is_neither_a_bad_format_nor_a_zero(self):
        rows = [
            {"reward": 0.0, "failure_kind": "judge_unparseable"},
            {"reward": 0.0, "failure_reason": "no answer in the response"},
            {"reward": 0.0},
            {"reward": 1.0},
        ]
        by_word = samples(table_of(rows))
        assert by_word.valid.all()
        masked = samples(table_of(rows), policy=policy(["judge_unparseable=mask"]))
        assert masked.valid.tolist() == [False, True, True, True]
        assert samples(table_of(rows), policy=policy(["*=drop_group"])).valid.all()

    def test_a_legacy_label_that_is_another_word_than_the_kind(self):
        table = table_of([{"invalid_reason": "masked", "failure_kind": "judge_unparseable"}])
        table = table.append_column("failure_class", [["judge_invalid"]])
        assert samples(table, policy=policy(["judge_invalid=zero"])).valid.all()
        both = policy(["judge_invalid=zero", "judge_unparseable=mask"])
        assert not samples(table, policy=both).valid.any()

    def test_groups_are_those_that_were_asked_for(self):
        rows = [
            {"group": "g", "step": 1, "invalid_reason": "failed"},
            {"group": "g", "step": 1},
            {"group": "g", "step": 2},
        ]
        rule = policy(["failed=drop_group"])
        assert samples(table_of(rows), policy=rule).valid.tolist() == [False] * 3
        apart = samples(table_of(rows), group_by=("group", "step"), policy=rule)
        assert apart.valid.tolist() == [False, False, True]


class TestCommands:
    def test_score_writes_it_down(self, cli, tmp_path):
        out = tmp_path / "out.parquet"
        words = ("score", ORCHARD, "-e", "group_mean", "-o", out, "--json")
        ended = cli(*words, "--on-failure", "judge_failed=drop_group")
        document = json.loads(ended.out)
        assert document["on_failure"] == {"judge_failed": "drop_group", "*": "mask"}
        assert document["coverage"]["rows_by_policy"] == {"judge_failed": 1}
        table = pq.read_table(out)
        dropped = [r for r in table.to_pylist() if r["reason"] == "dropped_group"]
        assert {row["group"] for row in dropped} == {"orchard_agent/0"}
        assert len(dropped) == 5
        assert all(row["advantage"] == 0 and not row["valid"] for row in dropped)
        told = sorted(row["invalid_reason"] for row in dropped)
        assert told == ["dropped_group"] * 3 + ["masked"] * 2  # the file's word is kept
        kept = json.loads(table.schema.metadata[_output.METADATA])
        assert kept["on_failure"] == document["on_failure"]

    def test_and_it_still_holds_when_that_is_read_again(self, cli, tmp_path):
        out = tmp_path / "out.jsonl"
        rule = ("--on-failure", "agent_request_failed=mask,judge_failed=drop_group")
        cli("score", ORCHARD, "-e", "group_mean", "-o", out, *rule)
        first = adapters.read(out)
        again = tmp_path / "again.jsonl"
        assert cli("score", out, "-e", "group_mean", "-o", again).code == 0
        assert adapters.read(again)["valid"].to_pylist() == first["valid"].to_pylist()

    @pytest.mark.parametrize("command", [["inspect"], ["calibrate", "--kernel", "length"]])
    def test_the_others_take_it_too(self, cli, command):
        ended = cli(*command, ORCHARD, "--json", "--on-failure", "*=zero")
        document = json.loads(ended.out)
        assert document["on_failure"] == {"*": "zero"}
        assert document["coverage"]["valid"] == document["coverage"]["rollouts"] == 10
        assert document["coverage"]["counted_as_zero"] == {
            "masked": 1,
            "missing_reward": 1,
            "judge_failed": 1,
            "agent_request_failed": 1,
        }

    def test_a_kind_that_no_row_has_is_said(self, cli):
        ended = cli("inspect", ORCHARD, "--on-failure", "cancelled=zero")
        assert ended.code == 0
        assert "cancelled=zero: no row has that failure kind or reason" in ended.err
        assert "judge_failed" in ended.err

    def test_free_text_is_no_kind(self, cli, tmp_path):
        path = tmp_path / "a.jsonl"
        row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "responses_create_params": {}}
        path.write_text(json.dumps({**row, "reward": 0.0, "failure_reason": "bad"}) + "\n")
        ended = cli("inspect", path, "--on-failure", "bad=mask")
        assert "1 row has it as free text in failure_reason, which decides nothing" in ended.err

    def test_contradictions_are_one_line(self, cli):
        ended = cli(
            "score", ORCHARD, "-e", "grpo", "--on-failure", "a=mask", "--count-as-zero", "a"
        )
        assert ended.code == 2
        assert ended.err.count("\n") == 1
