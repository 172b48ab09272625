"""NeMo Gym rollouts and their sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advlib import adapters
from advlib.adapters import schema
from tests.adapters.made import MISSING, nemo, read, reported, rows, write_lines


def test_every_field(tmp_path: Path) -> None:
    made = nemo(
        4,
        2,
        1.5,
        reward_components={"right": 1.0, "form": 0.5},
        response={
            "model": "m-1",
            "usage": {"output_tokens": 5},
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [],
        },
        responses_create_params={
            "instructions": "be brief",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "count"}]},
                {"type": "function_call_output", "call_id": "c", "output": "17"},
            ],
        },
        failure_kind="orchard:slow",
        failure_reason="answered on the second try",
    )
    path = write_lines(tmp_path / "rollouts.jsonl", made)
    assert rows(path)[0] == {
        "rollout_id": f"{path}#4-2",
        "episode_id": None,
        "environment": "agent_a",
        "task": "4",
        "group": "agent_a/4",
        "prompt": "be brief\n\ncount\n\n17",
        "reward": 1.5,
        "reward_components": [("right", 1.0), ("form", 0.5)],
        "valid": True,
        "invalid_reason": None,
        "failure_kind": "orchard:slow",
        "failure_reason": "answered on the second try",
        "mask_source": None,
        "truncated": True,
        "response_length": 5,
        "policy": "m-1",
        "step": None,
        "kind": None,
        "advantage": None,
        "tier": None,
        "margins": None,
        "hack": None,
        "format": "nemo_gym",
        "source_file": str(path),
        "source_line": 1,
    }


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({"mask_sample": True}, "mask_sample"),
        ({"instance_config": {"mask_sample": True}}, "instance_config.mask_sample"),
        ({"mask_sample": False, "instance_config": {"mask_sample": True}},
         "instance_config.mask_sample"),
        ({"mask_sample": True, "instance_config": {"mask_sample": True},
          "_ng_failure_class": "judge_failed"},
         "mask_sample+instance_config.mask_sample+failure_class"),
        ({"_ng_failure_class": "judge_failed"}, "failure_class"),
        ({"mask_sample": None}, None),
        ({"mask_sample": False}, None),
        ({"mask_sample": "true"}, None),
        ({"instance_config": None}, None),
        ({"instance_config": {"mask_sample": None}}, None),
        ({"instance_config": "x"}, None),
        ({"_ng_failure_class": None}, None),
        ({"failure_kind": "judge_failed"}, None),
        ({"failure_reason": "argument_below_threshold"}, None),
    ],
)  # fmt: skip
def test_masks(tmp_path: Path, more: dict, source: str | None) -> None:
    """Any place that says so masks; a kind or a reason alone never does."""
    got = rows(write_lines(tmp_path / "r.jsonl", nemo(**more)))[0]
    assert got["mask_source"] == source
    assert got["valid"] == (source is None)
    assert got["invalid_reason"] == (None if source is None else schema.MASKED)
    assert got["reward"] == 1.0


@pytest.mark.parametrize(
    ("more", "truncated"),
    [
        ({"response": {"status": "completed"}}, False),
        ({"response": {"status": "incomplete"}}, True),
        ({"response": {"incomplete_details": {"reason": "content_filter"}}}, False),
        ({"response": {}, "truncated": True}, True),
        ({"response": {}}, None),
        ({"response": None}, None),
    ],
)
def test_truncated(tmp_path: Path, more: dict, truncated: bool | None) -> None:
    assert rows(write_lines(tmp_path / "r.jsonl", nemo(**more)))[0]["truncated"] is truncated


@pytest.mark.parametrize(
    ("output", "length"),
    [
        ([{"generation_token_ids": [1, 2]}, {"type": "x"}, {"generation_token_ids": [3]}], 3),
        ([{"generation_token_ids": []}], None),
        ([{"type": "message"}], None),
        ("generation_token_ids", None),
    ],
)
def test_length_without_usage(tmp_path: Path, output: Any, length: int | None) -> None:
    made = nemo(response={"model": "m", "output": output})
    assert rows(write_lines(tmp_path / "r.jsonl", made))[0]["response_length"] == length


class TestTasks:
    def test_without_an_index_the_request_is_the_task(self, tmp_path: Path) -> None:
        made = [
            nemo(MISSING, i, responses_create_params={"input": text, "temperature": i})
            for i, text in enumerate(["a", "b", "a"])
        ]
        got = rows(write_lines(tmp_path / "r.jsonl", *made))
        assert got[0]["group"] == got[2]["group"] != got[1]["group"]
        assert got[0]["task"] != "0"

    def test_request_without_input_is_told_by_its_metadata(self, tmp_path: Path) -> None:
        made = [
            nemo(MISSING, i, responses_create_params={"input": [], "metadata": {"instance": n}})
            for i, n in enumerate("aba")
        ]
        got = [row["task"] for row in rows(write_lines(tmp_path / "r.jsonl", *made))]
        assert got[0] == got[2] != got[1]

    def test_nothing_to_group_by(self, tmp_path: Path) -> None:
        """BR-21."""
        bare = nemo(MISSING, 0, responses_create_params={"input": []})
        path = write_lines(tmp_path / "r.jsonl", nemo(), bare)
        with pytest.raises(adapters.FormatError, match=r"r\.jsonl:2: no task .*_ng_task_index"):
            read(path)

    def test_index_is_the_task_inside_a_run(self, tmp_path: Path) -> None:
        """Whatever the request carries that changes from rollout to rollout."""
        made = [nemo(3, i, responses_create_params={"input": f"at {i}"}) for i in range(3)]
        got = rows(write_lines(tmp_path / "r.jsonl", *made))
        assert {row["group"] for row in got} == {"agent_a/3"}

    def test_one_index_for_different_tasks_of_two_runs(self, tmp_path: Path) -> None:
        """BR-20."""
        one = write_lines(tmp_path / "a.jsonl", nemo(0, 0), nemo(0, 1))
        two = write_lines(tmp_path / "b.jsonl", *(
            nemo(0, i, responses_create_params={"input": "another"}) for i in range(2)
        ))  # fmt: skip
        same = write_lines(tmp_path / "c.jsonl", nemo(0, 0))
        table = read([one, two, same])
        a, b, c, d, e = table.column("group").to_pylist()
        assert a == b == e == "agent_a/0"
        assert c == d != a
        assert adapters.report(table).notes == {"reused_group_id": 1}

    def test_two_agents_on_one_index(self, tmp_path: Path) -> None:
        made = [nemo(0, 0), nemo(0, 1, agent_ref={"name": "agent_b"})]
        got = rows(write_lines(tmp_path / "r.jsonl", *made))
        assert [row["group"] for row in got] == ["agent_a/0", "agent_b/0"]

    def test_the_server_names_the_environment(self, tmp_path: Path) -> None:
        got = rows(write_lines(tmp_path / "r.jsonl", nemo(_ng_environment_server="srv")))[0]
        assert got["environment"] == "srv"


def failed(task: int = 0, rollout: int = 0, **more: Any) -> dict:
    return {
        "_ng_failure_class": "agent_request_failed",
        "_ng_failure_type": "ClientConnectorError",
        "_ng_failure_message": "cannot connect",
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "agent_a"},
        **more,
    }


class TestSidecar:
    def files(self, tmp_path: Path, main: list, sidecar: list) -> tuple[Path, Path]:
        return (
            write_lines(tmp_path / "rollouts.jsonl", *main),
            write_lines(tmp_path / "rollouts_failures.jsonl", *sidecar),
        )

    def test_run_failure(self, tmp_path: Path) -> None:
        main, sidecar = self.files(tmp_path, [nemo(0, 0)], [failed(0, 1)])
        got = rows(main)[1]
        assert (got["valid"], got["reward"]) == (False, None)
        assert (got["invalid_reason"], got["mask_source"]) == (schema.MASKED, "failure_class")
        assert got["failure_kind"] == "agent_request_failed"
        assert got["failure_reason"] == "cannot connect"
        assert got["group"] == "agent_a/0"
        assert got["source_file"] == str(sidecar)
        assert got["rollout_id"] == f"{main}#0-1"

    def test_judge_failure_keeps_its_placeholder_and_does_not_count(self, tmp_path: Path) -> None:
        made = nemo(0, 1, 0.0, _ng_failure_class="judge_failed", _ng_failure_judge_error="late")
        main, _ = self.files(tmp_path, [nemo(0, 0)], [made])
        got = rows(main)[1]
        assert (got["reward"], got["valid"], got["failure_reason"]) == (0.0, False, "late")

    def test_last_attempt_stands_and_the_main_file_before_all(self, tmp_path: Path) -> None:
        main, sidecar = self.files(
            tmp_path,
            [nemo(0, 0)],
            [failed(0, 1), failed(0, 0), failed(0, 1, _ng_failure_message="again")],
        )
        for given in (main, [sidecar, main], tmp_path):
            table = read(given)
            got = {row["rollout_id"]: row for row in table.to_pylist()}
            assert len(got) == 2
            assert got[f"{main}#0-0"]["valid"]
            assert got[f"{main}#0-1"]["failure_reason"] == "again"
            assert reported(table) == {"superseded_attempt": 2}

    def test_alone(self, tmp_path: Path) -> None:
        _, sidecar = self.files(tmp_path, [nemo(0, 0)], [failed(0, 0), failed(0, 0)])
        table = read(sidecar)
        assert table.num_rows == 1
        assert reported(table) == {"superseded_attempt": 1}

    def test_not_joined(self, tmp_path: Path) -> None:
        main, _ = self.files(tmp_path, [nemo(0, 0)], [failed(0, 1)])
        assert read(main, join=False).num_rows == 1

    def test_strict_failure_records(self, tmp_path: Path) -> None:
        record = {
            "schema_version": 1,
            "episode_id": {"rollout_id": "0-1", "attempt": 0},
            "run_id": "r",
            "source": "environment",
            "delivery": "delivered",
            "failure": {"failure_reason": "gone", "terminal": True, "failure_kind": "session_lost"},
        }
        main, _ = self.files(tmp_path, [nemo(0, 0)], [record])
        got = rows(main)[1]
        assert (got["invalid_reason"], got["reward"]) == (schema.FAILED, None)
        assert (got["failure_kind"], got["failure_reason"]) == ("session_lost", "gone")
        assert (got["task"], got["rollout_id"]) == ("0", f"{main}#0-1")

    def test_failure_without_any_key_is_a_row(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "x_failures.jsonl", {"_ng_failure_class": "cancelled"})
        got = rows(path)[0]
        assert (got["valid"], got["task"]) == (False, "unknown:1")


def test_one_key_twice_in_the_main_file(tmp_path: Path) -> None:
    """BR-27."""
    path = write_lines(tmp_path / "r.jsonl", nemo(0, 0, 0.0), nemo(0, 0, 1.0), nemo(0, 1, 0.0))
    table = read(path)
    assert table.column("reward").to_pylist() == [1.0, 0.0]
    assert reported(table) == {"duplicate_id": 1}


def test_one_key_in_two_runs_is_two_rollouts(tmp_path: Path) -> None:
    table = read([write_lines(tmp_path / f"{n}.jsonl", nemo(0, 0)) for n in "ab"])
    assert table.num_rows == 2
    assert len(set(table.column("group").to_pylist())) == 1


def test_missing_reward_is_no_zero(tmp_path: Path) -> None:
    got = rows(write_lines(tmp_path / "r.jsonl", nemo(reward=MISSING), nemo(0, 1, None)))
    assert [row["invalid_reason"] for row in got] == [schema.MISSING, schema.NULL]


def test_inputs_and_statistics_of_a_run_are_left_alone(tmp_path: Path) -> None:
    write_lines(tmp_path / "rollouts.jsonl", nemo())
    inputs = write_lines(tmp_path / "rollouts_materialized_inputs.jsonl", nemo(reward=MISSING))
    table = read(tmp_path)
    assert table.num_rows == 1
    assert list(adapters.report(table).ignored) == [str(inputs)]
