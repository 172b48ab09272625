"""What a report asks of a NeMo Gym run: its other numbers, and what it meant to make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advlib import adapters
from tests.adapters.made import nemo, read, write_lines


def asked(task: int, rollout: int, agent: str | None = "agent_a") -> dict:
    row = {"_ng_task_index": task, "_ng_rollout_index": rollout, "responses_create_params": {}}
    return row if agent is None else {**row, "agent_ref": {"name": agent}}


def dispatched(folder: Path) -> adapters.Dispatched:
    table = read(folder / "rollouts.jsonl", details=True)
    first = adapters.report(table).files[0]
    assert first.dispatched is not None
    return first.dispatched


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four rollouts of one task and one of another were meant; three of them have rows."""
    write_lines(tmp_path / "rollouts.jsonl", nemo(0, 0, 1.0), nemo(0, 1, 0.0, mask_sample=True))
    failed = {k: v for k, v in nemo(0, 2, None).items() if k != "reward"}
    write_lines(
        tmp_path / "rollouts_failures.jsonl", {**failed, "_ng_failure_class": "agent_run_error"}
    )
    write_lines(
        tmp_path / "rollouts_materialized_inputs.jsonl",
        *(asked(0, n) for n in range(4)),
        asked(1, 0, "agent_b"),
    )
    return tmp_path


class TestDenominator:
    def test_what_has_no_row(self, run):
        found = dispatched(run)
        assert found.rollouts == 5
        assert {name: tally.count for name, tally in found.absent.items()} == {
            "agent_a": 1,
            "agent_b": 1,
        }
        assert found.absent["agent_a"].lines == [4]
        assert (found.surplus, found.unreadable, found.ended) == (0, 0, False)

    def test_the_run_ended(self, run):
        (run / "rollouts_aggregate_metrics.json").write_text("[]")
        assert dispatched(run).ended

    @pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts_failures.jsonl"])
    def test_a_damaged_line_may_be_any_of_them(self, run, name):
        (run / "rollouts_aggregate_metrics.json").write_text("[]")
        with (run / name).open("a") as file:
            file.write('{"_ng_task_index": 0, "_ng_rol')
        assert not dispatched(run).ended

    def test_rows_that_were_not_meant_and_lines_that_name_none(self, run):
        with (run / "rollouts.jsonl").open("a") as file:
            file.write(json.dumps(nemo(7, 0, 1.0)) + "\n")
        with (run / "rollouts_materialized_inputs.jsonl").open("a") as file:
            file.write('[]\n{"_ng_task_index": 3}\nnot json\n' + json.dumps(asked(0, 0)) + "\n")
        found = dispatched(run)
        assert (found.rollouts, found.surplus, found.unreadable) == (5, 1, 3)

    def test_inputs_without_an_environment_are_of_the_only_one(self, run):
        write_lines(
            run / "rollouts_materialized_inputs.jsonl", asked(0, 0, None), asked(5, 0, None)
        )
        assert list(dispatched(run).absent) == ["agent_a"]

    def test_a_strict_failure_record_is_a_row_too(self, run):
        record = {
            "episode_id": {"rollout_id": "0-3", "attempt": 1},
            "failure": {"failure_reason": "gone", "terminal": True},
            "delivery": "not_sent",
        }
        with (run / "rollouts_failures.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        assert list(dispatched(run).absent) == ["agent_b"]

    def test_it_is_asked_for(self, run):
        plain = read(run / "rollouts.jsonl")
        assert adapters.report(plain).files[0].dispatched is None
        assert plain.schema.names == adapters.SCHEMA.names
        alone = read(run / "rollouts.jsonl", details=True, join=False)
        assert adapters.report(alone).files[0].dispatched is None

    def test_inputs_named_beside_their_run_are_left_alone(self, run):
        table = read(sorted(run.glob("*.jsonl")))
        assert table.num_rows == 3
        [(path, why)] = adapters.report(table).ignored.items()
        assert path.endswith("rollouts_materialized_inputs.jsonl")
        assert "no rollouts" in why


class TestColumns:
    def test_numbers_of_a_row(self, tmp_path):
        row = nemo(
            0,
            3,
            1.0,
            resolved=True,
            latency_ms=12,
            word="no",
            nested={"x": 1},
            nothing=None,
            _hidden=4,
            mask_sample=False,
            response={"usage": {"total_tokens": 7, "details": {"cached": 1}}},
            ng_perf={"num_turns": 2, "total_latency_ms": 1.5, "other": 3},
        )
        table = read(write_lines(tmp_path / "a.jsonl", row, nemo(0, 4, 0.0)), details=True)
        more = [name for name in table.schema.names if name not in adapters.SCHEMA.names]
        first, second = table.select(more).to_pylist()
        assert first == {
            "rollout_index": 3,
            "metric:resolved": 1.0,
            "metric:latency_ms": 12.0,
            "metric:total_tokens": 7.0,
            "metric:output_tokens": None,
            "perf:reported": 1.0,
            "perf:num_turns": 2.0,
            "perf:total_latency_ms": 1.5,
        }
        assert second == dict.fromkeys(first) | {"rollout_index": 4, "metric:output_tokens": 5.0}

    def test_of_a_line_that_was_repaired(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text(
            json.dumps(nemo(0, 0, 1.0, ok=True)).replace("}", ', "x": NaN, "y": 2}', 1)[:-1]
            + ', "z": NaN, "w": 3}\n'
        )
        table = read(path, details=True)
        assert table["metric:ok"].to_pylist() == [1.0]
        assert table["metric:w"].to_pylist() == [3.0]
        assert "metric:z" not in table.schema.names


class TestFailureClass:
    def test_it_is_kept_where_it_is_another_word(self, tmp_path):
        path = write_lines(
            tmp_path / "a.jsonl",
            nemo(0, 0, 0.0, failure_kind="judge_unparseable", _ng_failure_class="judge_invalid"),
            nemo(0, 1, 0.0, failure_kind="judge_failed", _ng_failure_class="judge_failed"),
            nemo(0, 2, 1.0),
        )
        table = read(path)
        assert table["failure_class"].to_pylist() == ["judge_invalid", None, None]
        assert table["failure_kind"].to_pylist() == ["judge_unparseable", "judge_failed", None]

    def test_a_row_that_was_to_be_written_nowhere(self, tmp_path):
        made = nemo(0, 0, 1.0, _ng_no_persist=True)
        [row] = read(write_lines(tmp_path / "a.jsonl", made)).to_pylist()
        assert (row["invalid_reason"], row["mask_source"]) == ("masked", "no_persist")
        again = read(write_lines(tmp_path / "b.jsonl", made, nemo(0, 0, 0.5)))
        assert again["reward"].to_pylist() == [0.5]
