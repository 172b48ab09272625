"""Legacy verifiers results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advlib import adapters
from advlib.adapters import schema
from tests.adapters.made import legacy, read, rows, write_lines


def test_every_field(tmp_path: Path) -> None:
    row = legacy(
        3,
        0.5,
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}],
        answer="4",
        error=None,
        is_truncated=True,
        token_usage={"input_tokens": 13.0, "output_tokens": 4.0},
        metrics={"right": 1, "style": None, "note": "x"},
        step=7,
        advantage=-0.25,
    )
    path = write_lines(tmp_path / "results.jsonl", row)
    (tmp_path / "metadata.json").write_text(
        json.dumps({"env_id": "sums", "model": "m-1", "rollouts_per_example": 4})
    )
    table = read(path)
    got = table.to_pylist()[0]
    task = got["task"]
    assert task.startswith("3:")
    assert got == {
        "rollout_id": f"{path}:1",
        "episode_id": None,
        "environment": "sums",
        "task": task,
        "group": f"sums/{task}/step 7",
        "prompt": "be brief\n\n2+2?",
        "reward": 0.5,
        "reward_components": [("right", 1.0), ("style", None)],
        "valid": True,
        "invalid_reason": None,
        "failure_kind": None,
        "failure_reason": None,
        "mask_source": None,
        "truncated": True,
        "response_length": 4,
        "policy": "m-1",
        "step": 7,
        "kind": None,
        "advantage": -0.25,
        "tier": None,
        "margins": None,
        "hack": None,
        "format": "verifiers",
        "source_file": str(path),
        "source_line": 1,
    }
    assert adapters.report(table).files[0].group_size == 4


def test_flat_metrics_are_components_and_bookkeeping_is_not(tmp_path: Path) -> None:
    row = legacy(0, 1.0, generation_ms=3.0, scoring_ms=1, total_ms=4, right=1.0, calls=2, ok=True)
    got = rows(write_lines(tmp_path / "r.jsonl", row, json.dumps(row).replace("2,", "NaN,")))
    assert got[0]["reward_components"] == [("right", 1.0), ("calls", 2.0)]
    assert got[1]["reward_components"] == [("right", 1.0), ("calls", None)]


def test_metrics_stand_before_flat_ones(tmp_path: Path) -> None:
    row = legacy(0, 1.0, metrics={"right": 0.0}, right=0.0, other=3.0)
    got = rows(write_lines(tmp_path / "r.jsonl", row))[0]
    assert got["reward_components"] == [("right", 0.0)]


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        ({"error": "InfraError", "message": "lost", "error_chain_str": "a -> b"}, "InfraError",
         "lost"),
        ({"error": "InfraError", "error_chain_str": "a -> b"}, "InfraError", "a -> b"),
        ("timeout", None, "timeout"),
        ({}, None, None),
    ],
)  # fmt: skip
def test_error_is_a_failure(
    tmp_path: Path, error: Any, kind: str | None, reason: str | None
) -> None:
    got = rows(write_lines(tmp_path / "r.jsonl", legacy(0, 0.0, error=error)))[0]
    assert (got["valid"], got["invalid_reason"]) == (False, schema.FAILED)
    assert (got["failure_kind"], got["failure_reason"]) == (kind, reason)
    assert got["reward"] == 0.0  # as written


def test_error_without_reward_is_no_zero(tmp_path: Path) -> None:
    """BR-115."""
    path = write_lines(tmp_path / "r.jsonl", {"example_id": 3, "error": "timeout"})
    got = rows(path)[0]
    assert (got["valid"], got["reward"], got["invalid_reason"]) == (False, None, schema.FAILED)


def test_missing_and_null_rewards_differ(tmp_path: Path) -> None:
    """BR-31."""
    row = legacy()
    del row["reward"]
    got = rows(write_lines(tmp_path / "r.jsonl", row, legacy(0, None), legacy(0, 1)))
    assert [r["invalid_reason"] for r in got] == [schema.MISSING, schema.NULL, None]


class TestTasks:
    def groups(self, path: Path | list[Path]) -> list[str]:
        return [row["group"] for row in rows(path)]

    def test_equal_ids_of_different_tasks(self, tmp_path: Path) -> None:
        """BR-20: ids restart in every environment, one after the other in a file or in two."""
        x = [legacy(0, 1.0, "px", task="x"), legacy(0, 1.0, "px", task="x")]
        y = [legacy(0, 0.0, "py", task="y"), legacy(0, 0.0, "py", task="y")]
        got = rows(write_lines(tmp_path / "r.jsonl", *x, *y))
        assert [row["environment"] for row in got] == ["x", "x", "y", "y"]
        assert [row["task"].split(":")[0] for row in got] == ["0"] * 4
        a, b, c, d = (row["group"] for row in got)
        assert (a, c) == (b, d)
        assert a != c

    def test_equal_ids_without_any_environment(self, tmp_path: Path) -> None:
        one = write_lines(tmp_path / "a" / "r.jsonl", legacy(0, 1, "p"), legacy(0, 0, "p"))
        two = write_lines(tmp_path / "b" / "r.jsonl", legacy(0, 1, "q"), legacy(0, 0, "q"))
        a, b, c, d = self.groups([one, two])
        assert (a, c) == (b, d)
        assert a != c

    def test_same_task_in_two_files(self, tmp_path: Path) -> None:
        """Whatever the spacing and the order of names in a file."""
        prompt = [{"role": "user", "content": "p"}]
        turned = '{"reward":0,"prompt":[{"content" : "p","role" : "user"}],"example_id":5}'
        one = write_lines(tmp_path / "a.jsonl", legacy(5, 1, prompt))
        two = write_lines(tmp_path / "b.jsonl", turned)
        assert len(set(self.groups([one, two]))) == 1

    def test_one_uuid_a_rollout_is_no_task(self, tmp_path: Path) -> None:
        """BR-18: what stands beside the task key does not split it."""
        made = [legacy(7, r, rollout=f"u{i}", uid=f"u{i}") for i, r in enumerate([1, 0, 1, 0])]
        assert len(set(self.groups(write_lines(tmp_path / "r.jsonl", *made)))) == 1

    def test_ids_that_are_positions(self, tmp_path: Path) -> None:
        made = [legacy(i // 2, 1, f"p{i % 3}") for i in range(6)]
        groups = self.groups(write_lines(tmp_path / "r.jsonl", *made))
        assert groups[:3] == groups[3:]
        assert len(set(groups)) == 3

    def test_info_that_changes_from_rollout_to_rollout(self, tmp_path: Path) -> None:
        made = [legacy(i // 2, 1, f"p{i // 2}", info={"session": i}) for i in range(4)]
        table = read(write_lines(tmp_path / "r.jsonl", *made))
        groups = table.column("group").to_pylist()
        assert groups[0] == groups[1] != groups[2] == groups[3]
        assert adapters.report(table).notes == {"info_varies_within_a_task": 1}

    def test_info_tells_tasks_apart(self, tmp_path: Path) -> None:
        made = [legacy(None, 1, "solve the issue", info={"issue": i // 2}) for i in range(4)]
        groups = self.groups(write_lines(tmp_path / "r.jsonl", *made))
        assert groups[0] == groups[1] != groups[2] == groups[3]

    def test_without_ids_the_prompt_is_the_task(self, tmp_path: Path) -> None:
        made = [legacy(None, 1, p) for p in ("a", "b", "a")]
        groups = self.groups(write_lines(tmp_path / "r.jsonl", *made))
        assert groups[0] == groups[2] != groups[1]

    def test_a_string_named_id_is_a_rollouts_own(self, tmp_path: Path) -> None:
        """BR-18."""
        made = [{"id": f"u{i}", "prompt": "p", "reward": i % 2} for i in range(4)]
        assert len(set(self.groups(write_lines(tmp_path / "r.jsonl", *made)))) == 1

    def test_the_name_id_counts_too(self, tmp_path: Path) -> None:
        row = {"id": 4, "prompt": "p", "completion": [], "reward": 1}
        assert rows(write_lines(tmp_path / "r.jsonl", row))[0]["task"].startswith("4:")

    def test_id_alone(self, tmp_path: Path) -> None:
        row = {"example_id": 4, "reward": 1}
        assert rows(write_lines(tmp_path / "r.jsonl", row))[0]["group"] == "unknown/4"

    def test_error_row_with_its_id_alone(self, tmp_path: Path) -> None:
        bare = [{"example_id": i, "error": "timeout"} for i in (0, 1, 2)]
        made = [bare[0], legacy(0, 1, "p"), legacy(1, 1, "q"), bare[1], bare[2]]
        table = read(write_lines(tmp_path / "r.jsonl", *made))
        a, b, c, d, e = table.column("group").to_pylist()
        assert a == b != c == d
        assert e == "unknown/2"
        assert adapters.report(table).notes == {}

    def test_nothing_to_group_by(self, tmp_path: Path) -> None:
        """BR-21: an error that names the field and the row, not one big group."""
        path = write_lines(tmp_path / "r.jsonl", legacy(1), legacy(None, 1, ""))
        with pytest.raises(adapters.FormatError, match=r"r\.jsonl:2: no task .*`example_id`"):
            read(path)

    def test_steps_are_apart(self, tmp_path: Path) -> None:
        made = [legacy(0, 1, step=s) for s in (1, 1, 2)]
        a, b, c = self.groups(write_lines(tmp_path / "r.jsonl", *made))
        assert a == b != c


class TestObjectRewards:
    """BR-110."""

    ROW = legacy(0, {"score": 1, "acc": True, "pred": "x"})

    def test_without_a_key(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", legacy(), self.ROW)
        with pytest.raises(adapters.FormatError, match=r":2: .*'score', 'acc', 'pred'.*reward_key"):
            read(path)

    def test_with_a_key(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", self.ROW)
        got = rows(path, reward_key="score")[0]
        assert (got["reward"], got["valid"]) == (1.0, True)
        assert got["reward_components"] == [("score", 1.0), ("acc", 1.0)]
        assert rows(path, reward_key="pred")[0]["invalid_reason"] == schema.NOT_A_NUMBER
        assert rows(path, reward_key="gone")[0]["invalid_reason"] == schema.MISSING


def test_mask_in_a_legacy_row(tmp_path: Path) -> None:
    got = rows(write_lines(tmp_path / "r.jsonl", legacy(0, 1, mask_sample=True)))[0]
    assert (got["invalid_reason"], got["mask_source"]) == (schema.MASKED, "mask_sample")


def test_unreadable_metadata_is_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "results.jsonl", legacy())
    (tmp_path / "metadata.json").write_text("{")
    with pytest.warns(adapters.ReadWarning, match="metadata.json"):
        table = adapters.read(path)
    assert table.column("environment").to_pylist() == ["unknown"]


def test_images_have_no_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    prompt = [{"role": "user", "content": parts}]
    assert rows(write_lines(tmp_path / "r.jsonl", legacy(0, 1, prompt)))[0]["prompt"] == "see"
