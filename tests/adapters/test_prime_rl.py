"""prime-rl and verifiers v1: episodes, traces, annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advlib import adapters
from advlib.adapters import schema
from tests.adapters.made import episode, read, reported, rows, trace, write_lines

GAR = {"label": "c1", "hack": "none", "evidence": [], "tier": 0, "w": 1.0, "f": 1.0}


def one(tmp_path: Path, *lines: Any, **options: Any) -> dict[str, Any]:
    (row,) = rows(write_lines(tmp_path / "traces.jsonl", *lines), **options)
    return row


def test_every_field(tmp_path: Path) -> None:
    made = trace(
        "t1",
        {"right": {"score": 1.0, "weight": 0.5}, "style": None},
        info={"kind": "train", "advantage": 0.75, "gar": {**GAR, "margins": ["slight", "large"]}},
        stop_condition="max_output_tokens",
        calls=[
            {"model": "m-1", "finish_reason": "tool_calls", "usage": {"completion_tokens": 3}},
            {"model": "m-1", "finish_reason": "stop", "usage": {"completion_tokens": 2}},
        ],
    )
    path = write_lines(tmp_path / "traces.jsonl", episode(made, id="e1"))
    got = rows(path)[0]
    assert got == {
        "rollout_id": "t1",
        "episode_id": "e1",
        "environment": "picker-train",
        "task": "t1",
        "group": "g",
        "prompt": "pick",
        "reward": 0.5,
        "reward_components": [("right", 1.0), ("style", None)],
        "valid": True,
        "invalid_reason": None,
        "failure_kind": None,
        "failure_reason": None,
        "mask_source": None,
        "truncated": True,
        "response_length": 5,
        "policy": "m-1",
        "step": 3,
        "kind": "train",
        "advantage": 0.75,
        "tier": 0,
        "margins": [0.25, 1.0],
        "hack": "none",
        "format": "prime_rl",
        "source_file": str(path),
        "source_line": 1,
    }


@pytest.mark.parametrize(
    ("rewards", "reward", "reason"),
    [
        ({}, None, schema.MISSING),
        ({"a": None, "b": None}, None, schema.NULL),
        (None, 1.0, None),
        ({"a": {"score": 1.0, "weight": 0.6}, "b": {"score": 0.0, "weight": 0.4}}, 0.6, None),
        ({"a": {"score": 1.0}, "b": None}, 1.0, None),
        ({"a": {"score": None, "weight": 1.0}}, None, schema.NULL),
        ({"a": 0.5}, 0.5, None),
        ({"a": {"score": "1", "weight": 1.0}}, None, schema.NOT_A_NUMBER),
        ({"a": {"score": 1.0, "weight": "1"}}, None, schema.NOT_A_NUMBER),
        ({"a": {"score": float("nan")}, "b": {"score": 1.0}}, None, schema.NAN),
        ({"a": {"score": 1e308, "weight": 10}}, None, schema.INFINITE),
        ([1.0], None, schema.NOT_A_NUMBER),
    ],
)
def test_rewards(tmp_path: Path, rewards: Any, reward: float | None, reason: str | None) -> None:
    """BR-36: weights count. BR-31: what was never scored is no zero."""
    got = one(tmp_path, episode(trace("t", rewards)))
    assert (got["reward"], got["invalid_reason"]) == (pytest.approx(reward), reason)


def test_scores_after_a_failure(tmp_path: Path) -> None:
    """BR-120: the mean is over the rows that count."""
    made = [
        episode(trace("a", {"correct": {"score": 1.0}})),
        episode(trace("b", {"correct": {"score": 0.0}})),
        episode(trace("c", {"correct": None}, ok=False, errors=[{"type": "E", "message": "m"}])),
    ]
    got = rows(write_lines(tmp_path / "t.jsonl", *made))
    valid = [row["reward"] for row in got if row["valid"]]
    assert sum(valid) / len(valid) == 0.5
    assert got[2]["reward_components"] == [("correct", None)]
    assert (got[2]["failure_kind"], got[2]["failure_reason"]) == ("E", "m")


class TestValidity:
    def test_not_ok_keeps_its_reward(self, tmp_path: Path) -> None:
        got = one(tmp_path, episode(trace("t", ok=False)))
        assert (got["valid"], got["invalid_reason"], got["reward"]) == (False, schema.FAILED, 1.0)

    def test_errors_say_so_where_ok_is_absent(self, tmp_path: Path) -> None:
        made = trace("t", errors=[{"type": "E", "message": "m"}])
        del made["ok"]
        assert one(tmp_path, episode(made))["invalid_reason"] == schema.FAILED

    def test_frozen_agent(self, tmp_path: Path) -> None:
        got = one(tmp_path, episode(trace("t", agent={"name": "agent", "trainable": False})))
        assert (got["valid"], got["invalid_reason"]) == (False, schema.NOT_TRAINABLE)

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"mask_sample": True, "ok": False, "rewards": {}}, schema.MASKED),
            ({"ok": False, "rewards": {}}, schema.FAILED),
            ({"rewards": {}}, schema.MISSING),
            ({}, schema.NOT_TRAINABLE),
        ],
    )
    def test_the_first_reason_counts(self, tmp_path: Path, more: dict, reason: str) -> None:
        made = trace("t", agent={"trainable": False}) | more
        assert one(tmp_path, episode(made))["invalid_reason"] == reason

    def test_episode_without_traces_is_a_failed_row(self, tmp_path: Path) -> None:
        made = episode(id="e9", ok=False, errors=[{"type": "Boot", "message": "no room"}])
        path = write_lines(tmp_path / "t.jsonl", made)
        got = rows(path)[0]
        assert (got["rollout_id"], got["invalid_reason"]) == ("e9", schema.FAILED)
        assert (got["failure_kind"], got["failure_reason"]) == ("Boot", "no room")
        assert (got["group"], got["reward"]) == ("g", None)


class TestGroups:
    def test_without_a_group_id_environment_task_and_step(self, tmp_path: Path) -> None:
        assert one(tmp_path, episode(trace("t"), group=None))["group"] == "picker-train/t1/step 3"

    def test_hash_then_data_never_the_index(self, tmp_path: Path) -> None:
        """BR-20: `idx` restarts in every environment."""
        made = []
        for name, data, more in (
            ("a", {"idx": 0, "prompt": "p"}, {"hash": "h1"}),
            ("b", {"idx": 0, "prompt": "q"}, {}),
            ("c", {"prompt": "q", "idx": 0}, {}),
            ("d", {"idx": 0, "prompt": "r"}, {}),
        ):
            made.append(episode(trace(name), group=None, task={"data": data, **more}, run=None))
        got = [row["task"] for row in rows(write_lines(tmp_path / "t.jsonl", *made))]
        assert got[0] == "h1"
        assert got[1] == got[2] != got[3]

    def test_one_group_id_in_two_environments(self, tmp_path: Path) -> None:
        x = {"id": "x"}
        made = [episode(trace("a")), episode(trace("b"), env=x), episode(trace("c"), env=x)]
        table = read(write_lines(tmp_path / "t.jsonl", *made))
        a, b, c = table.column("group").to_pylist()
        assert a == "g"
        assert b == c != a
        assert adapters.report(table).notes == {"reused_group_id": 2}

    def test_agents_of_one_episode_are_apart(self, tmp_path: Path) -> None:
        solver = {"name": "solver", "trainable": True}
        writer = {"name": "writer", "trainable": True}
        made = episode(trace("a", agent=solver), trace("b", agent=writer), trace("c", agent=solver))
        got = rows(write_lines(tmp_path / "t.jsonl", made))
        assert [row["group"] for row in got] == ["g/solver", "g/writer", "g/solver"]
        assert {row["episode_id"] for row in got} == {"e-a"}


def test_traces_of_an_episode_each_count(tmp_path: Path) -> None:
    made = [episode(trace("a"), trace("b"), trace("c")), episode(id="none")]
    table = read(write_lines(tmp_path / "t.jsonl", *made))
    one_file = adapters.report(table).files[0]
    assert (one_file.lines, one_file.extra_traces, one_file.rows) == (2, 2, 4)
    assert table.column("source_line").to_pylist() == [1, 1, 1, 2]


def test_traces_without_ids_are_named_by_their_place(tmp_path: Path) -> None:
    a, b = trace("x"), trace("y")
    del a["id"], b["id"]
    path = write_lines(tmp_path / "t.jsonl", episode({**a}, {**b}, id="e"))
    assert [row["rollout_id"] for row in rows(path)] == [f"{path}:1", f"{path}:1#1"]


def test_grade_transcripts_are_counted_and_left_out(tmp_path: Path) -> None:
    grade = episode(trace("g1", info={"kind": "grade"}), trace("g2"), group=None)
    mixed = episode(trace("a"), trace("b", info={"kind": "grade"}))
    table = read(write_lines(tmp_path / "t.jsonl", grade, mixed))
    assert table.column("rollout_id").to_pylist() == ["a"]
    assert reported(table) == {"grade_trace": 3}


def test_bare_traces(tmp_path: Path) -> None:
    data = {"idx": 0, "prompt": "pick"}
    made = [trace(n, task={"type": "T", "data": data, "hash": "h"}) for n in ("a", "b")]
    got = rows(write_lines(tmp_path / "t.jsonl", *made))
    assert [row["group"] for row in got] == ["unknown/h"] * 2
    assert {row["episode_id"] for row in got} == {None}


def test_a_retried_rollout_stands_once(tmp_path: Path) -> None:
    """BR-27: the last one stands, and the earlier one is reported with its line."""
    made = [episode(trace("u1", {"a": 0.0})), episode(trace("u1", {"a": 1.0})),
            episode(trace("u2", {"a": 0.0}))]  # fmt: skip
    with pytest.warns(adapters.ReadWarning, match="1 x duplicate_id .*line 1"):
        table = adapters.read(write_lines(tmp_path / "t.jsonl", *made))
    assert table.column("reward").to_pylist() == [1.0, 0.0]
    assert table.column("source_line").to_pylist() == [2, 3]
    adapters.report(table).check()


def test_the_same_traces_under_two_names(tmp_path: Path) -> None:
    every = write_lines(tmp_path / "all" / "traces.jsonl", episode(trace("a")), episode(trace("b")))
    clean = write_lines(tmp_path / "effective" / "traces.jsonl", episode(trace("b")))
    table = read([every, clean])
    assert table.column("rollout_id").to_pylist() == ["a", "b"]
    assert [f.rows for f in adapters.report(table).files] == [1, 1]


class TestResponse:
    @pytest.mark.parametrize(
        ("more", "truncated"),
        [
            ({"stop_condition": "agent_completed"}, False),
            ({"stop_condition": "max_turns"}, True),
            ({"calls": [{"finish_reason": "length"}]}, True),
            ({"calls": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, False),
            ({"calls": [{"finish_reason": "length"}, {"error": {"type": "E"}}]}, True),
            ({}, None),
        ],
    )
    def test_truncated(self, tmp_path: Path, more: dict, truncated: bool | None) -> None:
        assert one(tmp_path, episode(trace("t", **more)))["truncated"] is truncated

    def test_tokens_from_masks_where_no_call_counts_them(self, tmp_path: Path) -> None:
        assert one(tmp_path, episode(trace("t")))["response_length"] == 2

    def test_nothing_known_is_null(self, tmp_path: Path) -> None:
        assert one(tmp_path, episode(trace("t", nodes=[])))["response_length"] is None

    def test_prompt_is_the_way_to_the_first_sample(self, tmp_path: Path) -> None:
        nodes = [
            {"message": {"role": "system", "content": "s"}, "sampled": False},
            {"parent": 0, "message": {"role": "user", "content": "other"}, "sampled": False},
            {"parent": 0, "message": {"role": "user", "content": "mine"}, "sampled": False},
            {"parent": 2, "message": {"role": "assistant", "content": "a"}, "sampled": True},
            {"parent": 3, "message": {"role": "user", "content": "more"}, "sampled": False},
        ]
        assert one(tmp_path, episode(trace("t", nodes=nodes)))["prompt"] == "s\n\nmine"

    def test_prompt_of_the_task_where_there_are_no_nodes(self, tmp_path: Path) -> None:
        task = {"key": "k", "data": {"prompt": "p", "system_prompt": "s"}}
        assert one(tmp_path, episode(trace("t", nodes=[], task=task)))["prompt"] == "s\n\np"

    def test_parents_in_a_ring_end(self, tmp_path: Path) -> None:
        nodes = [{"parent": 1, "sampled": True}, {"parent": 0, "sampled": True}, {"parent": 2}]
        assert one(tmp_path, episode(trace("t", nodes=nodes)))["prompt"] == ""


class TestAdvantages:
    def nodes(self, *streams: list[float]) -> list[dict]:
        return [{"sampled": True, "advantages": stream} for stream in streams]

    @pytest.mark.parametrize(
        ("streams", "advantage"),
        [([[0.5, 0.5], [0.0, 0.5]], 0.5), ([[0.0, 0.0]], 0.0), ([[]], None), ([], None)],
    )
    def test_mean_over_tokens_that_are_not_zero(
        self, tmp_path: Path, streams: list, advantage: float | None
    ) -> None:
        made = episode(trace("t", nodes=self.nodes(*streams)))
        assert one(tmp_path, made)["advantage"] == advantage

    def test_the_scalar_stands_before_the_tokens(self, tmp_path: Path) -> None:
        made = trace("t", nodes=self.nodes([0.5]), info={"advantage": -1.0})
        assert one(tmp_path, episode(made))["advantage"] == -1.0

    def test_advantages_mode_of_the_grader(self, tmp_path: Path) -> None:
        gar = {"tier": 1, "margins": [0.5, "clear"], "advantage": 0.25, "hack": "suspected"}
        got = one(tmp_path, episode(trace("t", info={"gar": gar})))
        assert (got["advantage"], got["tier"], got["margins"], got["hack"]) == (
            0.25, 1, [0.5, 0.5], "suspected",
        )  # fmt: skip

    def test_fallback_of_the_grader_leaves_the_columns_null(self, tmp_path: Path) -> None:
        gar = {"label": "c1", "fallback_reason": "stale", "grader_trace_id": None}
        got = one(tmp_path, episode(trace("t", info={"gar": gar})))
        assert [got[c] for c in ("tier", "margins", "hack", "advantage")] == [None] * 4

    @pytest.mark.parametrize("tier", [2**31, -(2**31) - 1, 1.5, "0", True, None])
    def test_tier_that_is_none(self, tmp_path: Path, tier: Any) -> None:
        assert one(tmp_path, episode(trace("t", info={"gar": {"tier": tier}})))["tier"] is None


class TestAnnotations:
    def update(self, name: str, info: dict | None = None, *streams: list) -> dict:
        made: dict[str, Any] = {"version": 1, "trace_id": name}
        if info is not None:
            made["info"] = info
        made["branches"] = [{"index": i, "advantages": s} for i, s in enumerate(streams)]
        return made

    def test_joined_and_the_newest_wins(self, tmp_path: Path) -> None:
        stream = write_lines(tmp_path / "stream.jsonl", episode(trace("a")), episode(trace("b")))
        write_lines(
            tmp_path / "annotations" / "gar.jsonl",
            self.update("a", {"gar": {"tier": 1, "hack": "none"}}),
            self.update("a", {"gar": {"tier": 0}}),
            self.update("b", {"advantage": -0.5, "gar": {"tier": 1, "hack": "confirmed"}}),
            self.update("b", None, [None, 0.5, 0.25, None], [0.0]),
            self.update("gone", {"advantage": 1.0}),
        )
        for path in (stream, tmp_path):
            table = read(path)
            got = {row["rollout_id"]: row for row in table.to_pylist()}
            assert (got["a"]["tier"], got["a"]["hack"], got["a"]["advantage"]) == (0, "none", None)
            assert (got["b"]["tier"], got["b"]["hack"], got["b"]["advantage"]) == (
                1, "confirmed", -0.5,
            )  # fmt: skip
            assert reported(table) == {"annotation_joined": 4, "annotation_unmatched": 1}
        assert read(stream, join=False).column("tier").to_pylist() == [None, None]

    def test_token_streams_where_no_scalar_is(self, tmp_path: Path) -> None:
        path = write_lines(
            tmp_path / "s.jsonl",
            self.update("a", None, [None, 0.5, 0.25, None], [0.0]),  # may stand before its trace
            episode(trace("a")),
            self.update("a", None, [None, 0.5, 0.5, None]),
        )
        assert rows(path)[0]["advantage"] == 0.5

    def test_a_trace_that_turns_out_to_be_a_grade(self, tmp_path: Path) -> None:
        path = write_lines(
            tmp_path / "s.jsonl",
            episode(trace("a")),
            episode(trace("g", info={"kind": "grade"})),
            episode(trace("h")),
            self.update("g", {"advantage": 0.0}),
            self.update("h", {"kind": "grade"}),
        )
        table = read(path)
        assert table.column("rollout_id").to_pylist() == ["a"]
        assert reported(table) == {"grade_trace": 3, "annotation_joined": 1}

    def test_updates_alone_are_no_rollouts(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "s.jsonl", self.update("a", {"advantage": 0.0}))
        with pytest.raises(adapters.FormatError, match=r"no rollouts; .*1 x annotation_unmatched"):
            read(path)

    def test_indexes_are_left_alone(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "stream.jsonl", episode(trace("a")))
        index = write_lines(tmp_path / "stream.index.jsonl", {"offset": 0})
        table = read(tmp_path)
        assert adapters.report(table).ignored == {str(index): "an index of another file"}
