"""Episodes: the same groups as the table, whole transcripts, and nothing beyond them."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import shutil
import tracemalloc
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from advlib import adapters
from advlib.adapters import index_episodes
from advlib.grading import Episode, Turn, candidates
from tests.adapters import test_fuzz
from tests.adapters.made import episode, legacy, nemo, read, trace, write_lines
from tests.grading import agents

SAMPLES = Path(adapters.__file__).parent.parent / "samples"
BASH = "%%%% tool call: bash %%%%"


def indexed(path: Any, *args: Any, **options: Any) -> adapters.EpisodeIndex:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adapters.ReadWarning)
        index = index_episodes(path, *args, **options)
    index.report.check()
    return index


def everything(path: Any, *args: Any, **options: Any) -> dict[str, list[Episode]]:
    with indexed(path, *args, **options) as index:
        return {group: index.load(group) for group in index.groups}


def one(tmp_path: Path, *lines: Any) -> Episode:
    ((made,),) = everything(write_lines(tmp_path / "traces.jsonl", *lines)).values()
    return made


def of_table(table: pa.Table, agents: frozenset[str] = frozenset()) -> dict[str, dict[str, Any]]:
    """Group to rollout id to (reward, whether it is a candidate's), agents' names aside."""
    found: dict[str, dict[str, Any]] = {}
    for row in table.to_pylist():
        group = row["group"]
        for name in agents:
            group = group.removesuffix(f"/{name}")
        usable = row["invalid_reason"] in (None, "not_trainable")
        reward = row["reward"] if usable else None
        found.setdefault(group, {})[row["rollout_id"]] = (reward, row["valid"])
    return found


def of_episodes(groups: dict[str, list[Episode]]) -> dict[str, dict[str, Any]]:
    return {
        group: {
            made.id: (made.reward, made.reward is not None and made.clean and made.trainable)
            for rollout in episodes
            for made in rollout.traces
        }
        for group, episodes in groups.items()
    }


class TestAgreementWithTheTable:
    def test_made_agents(self, tmp_path: Path) -> None:
        path = agents.write(tmp_path / "traces.jsonl", 30)
        named = frozenset({"helper", "planner"})
        groups = everything(path)
        table = of_table(read(path), named)
        assert list(groups) == list(table)
        # An episode in which nothing was sampled is a row, and no trace.
        told = of_episodes(groups)
        for group, episodes in groups.items():
            for each in episodes:
                if not each.traces:
                    assert table[group].pop(each.id) == (None, False)
        assert told == table

    @pytest.mark.parametrize("name", ["arithmetic_results", "orchard_rollouts"])
    def test_samples(self, name: str) -> None:
        path = SAMPLES / f"{name}.jsonl"
        assert of_episodes(everything(path)) == of_table(read(path))

    @pytest.mark.parametrize("folder", ["verifiers", "nemo_gym"])
    def test_real_files(self, folder: str, shared_rollouts: Path) -> None:
        checked = 0
        for path in sorted((shared_rollouts / folder).glob("*.jsonl")):
            try:
                table = of_table(read(path))
            except adapters.FormatError:
                with pytest.raises(adapters.FormatError):
                    indexed(path)
                continue
            groups = everything(path)
            assert list(groups) == list(table)
            assert of_episodes(groups) == table
            checked += sum(map(len, groups.values()))
        assert checked > 50

    @pytest.mark.parametrize(
        "lines",
        [
            [legacy(0), legacy(0, 0.0, "q"), legacy(1), legacy(0, 0.5)],  # ids are positions
            [legacy(0, step=1), legacy(0, step=2)],
            [legacy(0, info={"a": 1}), legacy(0, info={"a": 2})],
            [episode(trace("a")), episode(trace("b"), key="t2"), episode(trace("c"), group=None)],
            [nemo(0, 0), nemo(0, 1), nemo(1, 0, responses_create_params={"input": "x"})],
            [trace("a"), trace("b")],
        ],
    )
    def test_names_that_are_decided_late(self, lines: list[Any], tmp_path: Path) -> None:
        path = write_lines(tmp_path / "results.jsonl", *lines)
        assert of_episodes(everything(path)) == of_table(read(path))

    def test_the_account(self, tmp_path: Path) -> None:
        path = agents.write(tmp_path / "traces.jsonl", 3)
        with path.open("ab") as file:
            file.write(b'\n  \n[1]\n{"nothing": 1}\n{"id": "torn", "tra')
        with indexed(path) as index:
            assert index.report == adapters.report(read(path))
            told = index.report.reported
        assert told == {
            "grade_trace": 1,
            "not_an_object": 1,
            "unrecognised": 1,
            "torn_last_line": 1,
        }

    def test_it_warns_as_reading_does(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "traces.jsonl", episode(trace("a")), '{"torn')
        with pytest.warns(adapters.ReadWarning, match="not JSON"):
            index_episodes(path)


class TestWhatCounts:
    def test_groups_come_in_the_order_of_the_file(self, tmp_path: Path) -> None:
        lines = [
            episode(trace(name), group=group) for name, group in zip("abcd", "yxyz", strict=True)
        ]
        groups = everything(write_lines(tmp_path / "t.jsonl", *lines))
        assert list(groups) == ["y", "x", "z"]
        assert [each.id for each in groups["y"]] == ["e-a", "e-c"]

    def test_a_trace_that_stands_twice_counts_once(self, tmp_path: Path) -> None:
        lines = [episode(trace("a")), episode(trace("b"))]
        write_lines(tmp_path / "all" / "traces.jsonl", *lines)
        write_lines(tmp_path / "effective" / "traces.jsonl", lines[0])
        ((*episodes,),) = everything(tmp_path).values()
        assert [each.id for each in episodes] == ["e-b", "e-a"]

    def test_part_of_a_line_may_count(self, tmp_path: Path) -> None:
        lines = [episode(trace("a"), trace("b")), episode(trace("a"), id="again")]
        ((first, again),) = everything(write_lines(tmp_path / "t.jsonl", *lines)).values()
        assert [each.id for each in first.traces] == ["b"]
        assert [each.id for each in again.traces] == ["a"]

    def test_grade_traces_and_annotations_are_left_out(self, tmp_path: Path) -> None:
        lines = [
            episode(trace("a")),
            episode(trace("g", info={"kind": "grade"})),
            episode(trace("late")),
            {"version": 1, "trace_id": "late", "info": {"kind": "grade"}},
            {"version": 1, "trace_id": "a", "info": {"advantage": 1.0}, "branches": []},
        ]
        with indexed(write_lines(tmp_path / "t.jsonl", *lines)) as index:
            (made,) = index.load("g")
            assert [each.id for each in made.traces] == ["a"]
            assert index.report.reported == {"grade_trace": 2, "annotation_joined": 2}

    def test_agents_stay_with_their_episode(self, tmp_path: Path) -> None:
        crew = [
            trace("a"),
            trace("h", agent={"name": "helper", "trainable": False}),
            trace("p", agent={"name": "planner", "trainable": True}),
        ]
        made = one(tmp_path, episode(*crew))
        assert made.group == "g"
        assert [(each.id, each.trainable) for each in made.traces] == [
            ("a", True),
            ("h", False),
            ("p", True),
        ]
        assert made.traces[1].reward == 1.0  # measured, though no sample of the policy

    def test_failed_masked_and_unscored_rollouts_are_no_candidates(self, tmp_path: Path) -> None:
        lines = [
            episode(trace("good")),
            episode(trace("failed", ok=False)),
            episode(trace("masked", mask_sample=True)),
            episode(trace("unscored", {"right": None})),
            episode(id="nothing"),
        ]
        ((*episodes,),) = everything(write_lines(tmp_path / "t.jsonl", *lines)).values()
        made = candidates(episodes, mode="rewards")
        assert [each.trace for each in made.candidates] == ["good"]
        assert dict(made.left_out) == {
            "e-failed": "failed",
            "e-masked": "failed",
            "e-unscored": "no reward",
            "nothing": "no traces",
        }
        assert len(candidates(episodes, mode="advantages").candidates) == 2

    def test_a_sidecar_is_superseded(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", nemo(0, 0, 1.0))
        failed = [nemo(0, nth, 0.0, _ng_failure_class="judge_failed") for nth in (0, 1)]
        write_lines(tmp_path / "r_failures.jsonl", *failed)
        ((*episodes,),) = everything(path).values()
        assert [each.traces[0].clean for each in episodes] == [True, False]
        assert [each.ok for each in episodes] == [True, False]

    def test_ids_that_are_missing(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "t.jsonl", legacy(), legacy())
        ((first, second),) = everything(path).values()
        assert (first.id, first.traces[0].id) == (f"{path}:1",) * 2
        assert second.traces[0].id == f"{path}:2"


class TestFields:
    def test_an_episode(self, tmp_path: Path) -> None:
        calls = [{"usage": {"completion_tokens": 3}}]
        run = {"work": {"type": "train", "step": 7, "policy": {"start": 5, "end": 6}}}
        made = trace("a", info={"patch": "+x", "privileged": {"tests": 3}}, calls=calls)
        told = one(tmp_path, episode(made, run=run))
        assert told._replace(traces=()) == Episode(
            "e-a", "g", "picker-train", "pick", (), True, 5, 7, "train"
        )
        assert told.traces[0]._asdict() == {
            "id": "a",
            "reward": 1.0,
            "clean": True,
            "trainable": True,
            "turns": (Turn("this"),),
            "masks": ((False, True, True),),
            "info": {"patch": "+x"},
            "response_length": 3,
        }

    @pytest.mark.parametrize("policy", [None, {}, {"start": None}, {"start": "5"}])
    def test_no_policy_span(self, policy: Any, tmp_path: Path) -> None:
        run = {"work": {"type": "train", "step": 7, "policy": policy}}
        assert one(tmp_path, episode(trace("a"), run=run)).policy_start is None

    def test_an_environment_of_its_own_words(self, tmp_path: Path) -> None:
        assert one(tmp_path, trace("bare")).id == "bare"
        assert one(tmp_path, episode(trace("a"), env={})).environment == "unknown"

    def test_nothing_secret_is_read(self, tmp_path: Path) -> None:
        secret = "canary-51"
        thinking = {"role": "assistant", "content": "seen", "reasoning_content": secret}
        node = {"message": thinking, "sampled": True, "provider_state": secret}
        data = {"prompt": "p", "answer": secret, "tests": [secret]}
        task = {"type": "T", "key": "k", "data": data}
        info = {"privileged": {"tests.py": secret}}
        item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": secret}]}
        response = {"output": [item, {"role": "assistant", "content": "seen"}]}
        for line in (
            episode(trace("a", info=info, nodes=[node], task=task), task=task),
            legacy(answer=secret, info={"solution": secret}, completion=[thinking]),
            nemo(response=response, expected_answer=secret),
        ):
            made = one(tmp_path, line)
            assert made.traces[0].turns == (Turn("seen"),)
            assert secret not in repr(made)

    def test_hidden_thoughts_of_the_made_agents(self, tmp_path: Path) -> None:
        path = agents.write(tmp_path / "t.jsonl", 5)
        assert agents.HIDDEN in path.read_text()
        assert agents.HIDDEN not in repr(everything(path))


def node(message: dict[str, Any], parent: int | None = None, mask: Any = (), **more: Any) -> dict:
    made = {"message": message, "mask": list(mask), "sampled": message["role"] == "assistant"}
    return made | ({} if parent is None else {"parent": parent}) | more


class TestForests:
    def test_planted_lines_are_found_where_they_were_planted(self, tmp_path: Path) -> None:
        path = agents.write(tmp_path / "t.jsonl", 40)
        found = 0
        for group, episodes in everything(path).items():
            planned = {each.trace: each for each in agents.attempts(group)}
            for made in (each for rollout in episodes for each in rollout.traces):
                plan = planned.get(made.id)
                if plan is not None and plan.turn:
                    found += 1
                    turn = made.turns[plan.turn - 1]
                    assert plan.quote in turn.policy.split("\n")
                    assert turn.results[0].startswith(plan.result[:40])
        assert found > 20

    def test_branches_share_nodes_and_each_sampled_node_is_one_turn(self, tmp_path: Path) -> None:
        call = [{"id": "k", "name": "bash", "arguments": "{}"}]
        nodes = [
            node({"role": "user", "content": "do"}, None, [False]),
            node({"role": "assistant", "content": "a", "tool_calls": call}, 0, [False, True]),
            node({"role": "tool", "content": "r", "tool_call_id": "k"}, 1, [False, False]),
            node({"role": "assistant", "content": "b"}, 2, [True]),
            node({"role": "assistant", "content": "c"}, 2, [True, True]),
            node({"role": "user", "content": "in short"}, None, [False]),
            node({"role": "assistant", "content": "d"}, 5, [True]),
        ]
        (made,) = one(tmp_path, episode(trace("t", nodes=nodes))).traces
        assert made.turns == (Turn(f"a\n{BASH}\n{{}}", ("r",)), Turn("b"), Turn("c"), Turn("d"))
        shared = (False, False, True, False, False)
        assert made.masks == ((*shared, True), (*shared, True, True), (False, True))
        assert made.response_length == 5

    def test_what_was_not_sampled_is_no_turn(self, tmp_path: Path) -> None:
        example = node({"role": "assistant", "content": "an example"}) | {"sampled": False}
        maybe = node({"role": "assistant", "content": "1 is not true"}, 0) | {"sampled": 1}
        nodes = [example, maybe, node({"role": "assistant", "content": "mine"}, 1)]
        assert one(tmp_path, episode(trace("t", nodes=nodes))).traces[0].turns == (Turn("mine"),)

    def test_without_tokens_there_are_no_masks(self, tmp_path: Path) -> None:
        nodes = [node({"role": "assistant", "content": "a"})]
        assert one(tmp_path, episode(trace("t", nodes=nodes))).traces[0].masks == ()

    @pytest.mark.parametrize("parent", [0, 5, -1, "0", 0.5])
    def test_a_parent_that_cannot_be(self, parent: Any, tmp_path: Path) -> None:
        nodes = [{**node({"role": "assistant", "content": "a"}, None, [True]), "parent": parent}]
        (made,) = one(tmp_path, episode(trace("t", nodes=nodes))).traces
        assert (made.turns, made.masks) == ((Turn("a"),), ((True,),))

    def test_the_made_agents_masks_are_their_branches(self, tmp_path: Path) -> None:
        lines = agents.episodes(6)
        raw = {each["id"]: each["nodes"] for line in lines for each in line["traces"]}
        shapes = defaultdict(int)
        for episodes in everything(agents.write(tmp_path / "t.jsonl", 6)).values():
            for made in (each for rollout in episodes for each in rollout.traces):
                nodes = raw[made.id]
                inner = {each.get("parent") for each in nodes}
                leaves = [at for at in range(len(nodes)) if at not in inner]
                told = []
                for leaf in leaves:
                    mask: list[bool] = []
                    at: int | None = leaf
                    while at is not None:
                        mask = nodes[at]["mask"] + mask
                        at = nodes[at].get("parent")
                    told.append(tuple(mask))
                assert made.masks == tuple(told)
                shapes[len(leaves)] += 1
        assert shapes[1]
        assert shapes[2]


class TestContents:
    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("text", "text"),
            (None, ""),
            ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
            ([{"type": "image_url", "image_url": {"url": "data:..."}}], "[image]"),
            ([{"type": "input_image"}, "b"], "[image]\nb"),
            ([{"type": "input_audio"}], "[input_audio]"),
            ([{"type": "x\n%%%% y"}], "[xy]"),
            ([{"type": 7}], "[part]"),
            ([{"type": "refusal", "refusal": "no"}], "no"),
            ([{"type": "thinking", "thinking": "hm"}, {"text": "a"}], "a"),
            ({"type": "output_text", "text": "a"}, "a"),
            ({"rows": [1, "ü"]}, '{"rows": [1, "ü"]}'),
            (7, "7"),
            ([[1, 2]], "[1, 2]"),
        ],
    )
    def test_parts(self, content: Any, told: str, tmp_path: Path) -> None:
        nodes = [node({"role": "assistant", "content": content})]
        assert one(tmp_path, episode(trace("t", nodes=nodes))).traces[0].turns == (Turn(told),)

    def test_nesting_without_end(self, tmp_path: Path) -> None:
        deep = '{"role":"assistant","content":{"a":' + "[" * 900 + "]" * 900 + "}}"
        line = json.dumps(episode(trace("t", nodes=[node({"role": "assistant", "content": "X"})])))
        line = line.replace(json.dumps({"role": "assistant", "content": "X"}), deep)
        (made,) = one(tmp_path, line).traces
        assert len(made.turns) == 1

    @pytest.mark.parametrize(
        ("call", "told"),
        [
            ({"id": "k", "name": "bash", "arguments": '{"a": 1}'}, f'{BASH}\n{{"a": 1}}'),
            ({"function": {"name": "bash", "arguments": "{}"}}, f"{BASH}\n{{}}"),
            ('{"id": "k", "name": "bash", "arguments": "{}"}', f"{BASH}\n{{}}"),
            ('{"function": {"name": "bash", "arguments": "{}"}}', f"{BASH}\n{{}}"),
            ({"name": "bash", "arguments": {"a": 1}}, f'{BASH}\n{{"a": 1}}'),
            ({"name": "bash"}, f"{BASH}\n"),
            ({"name": "ls", "namespace": "fs", "arguments": ""}, "%%%% tool call: fs.ls %%%%\n"),
            ("no JSON", '%%%% tool call: "" %%%%\nno JSON'),
            ("[1]", '%%%% tool call: "" %%%%\n[1]'),
        ],
    )
    def test_calls(self, call: Any, told: str, tmp_path: Path) -> None:
        completion = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        assert one(tmp_path, legacy(completion=completion)).traces[0].turns == (Turn(told),)


class TestLegacy:
    def test_a_conversation(self, tmp_path: Path) -> None:
        call = '{"id": "k1", "name": "bash", "arguments": "{}"}'
        prompt = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "an example"}]
        completion = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "k1", "content": "42"},
            {"role": "assistant", "content": "is it?"},
            {"role": "user", "content": "no"},
            {"role": "assistant", "content": "43"},
        ]
        made = one(tmp_path, legacy(prompt=prompt, completion=completion))
        assert made.task == "q\n\nan example"
        assert made.traces[0].turns == (
            Turn(f"{BASH}\n{{}}", ("42",)),
            Turn("is it?", ("no",)),
            Turn("43"),
        )
        assert made.traces[0].masks == ()

    @pytest.mark.parametrize(
        ("completion", "turns"),
        [("text", (Turn("text"),)), ([], ()), (None, ()), (["text"], (Turn("text"),)), (7, ())],
    )
    def test_other_completions(self, completion: Any, turns: Any, tmp_path: Path) -> None:
        assert one(tmp_path, legacy(completion=completion)).traces[0].turns == turns

    def test_an_error(self, tmp_path: Path) -> None:
        (made,) = one(tmp_path, legacy(error={"error": "E", "message": "m"})).traces
        assert (made.reward, made.clean) == (None, False)

    def test_a_named_reward(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", legacy(reward={"a": 0.25, "b": 1}))
        ((made,),) = everything(path, reward_key="a").values()
        assert made.traces[0].reward == 0.25
        with pytest.raises(adapters.FormatError, match="reward_key="):
            indexed(path)

    @pytest.mark.parametrize(
        "rows",
        [
            [
                episode(trace("a", {"x": {"score": 0.5, "weight": 2}, "y": {"score": 3.0}})),
                episode(trace("b", {"y": {"score": 1.0}, "x": None})),
                episode(trace("c", {"y": {"score": 2.0}})),
                episode(trace("d", {"x": {"score": 0.25}}, ok=False)),
            ],
            [
                nemo(0, 0, 7.0, reward_components={"x": 0.5, "y": 6.5}),
                nemo(0, 1, 1.0, reward_components={"x": None, "y": 1.0}),
                nemo(0, 2, 1.0),
                nemo(0, 3, 1.0, reward_components={"x": 0.25}, mask_sample=True),
            ],
        ],
        ids=["prime_rl", "nemo_gym"],
    )
    def test_a_part_where_rewards_are_more_than_one(self, rows: Any, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "rollouts.jsonl", *rows)
        (found,) = everything(path, component="x").values()
        assert [one.traces[0].reward for one in found] == [0.5, None, None, None]
        (whole,) = everything(path).values()
        assert whole[0].traces[0].reward in (4.0, 7.0)

    def test_a_part_that_no_reward_has(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", legacy(reward={"a": 0.25, "b": 1}))
        with pytest.raises(adapters.FormatError, match=r"a component 'c'; there are: 'a', 'b'"):
            indexed(path, reward_key="a", component="c")
        plain = write_lines(tmp_path / "plain.jsonl", legacy())
        with pytest.raises(adapters.FormatError, match=r"a component 'a'; there are: none"):
            indexed(plain, component="a")


REASONING = {"type": "reasoning", "summary": []}
CALL = {"type": "function_call", "call_id": "k", "name": "bash", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "k", "output": "r"}


class TestNeMoGym:
    def turns(self, tmp_path: Path, *items: Any) -> tuple[Turn, ...]:
        return one(tmp_path, nemo(response={"output": list(items)})).traces[0].turns

    def test_items_of_one_call_are_one_turn(self, tmp_path: Path) -> None:
        told = self.turns(
            tmp_path,
            REASONING,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}],
            },
            CALL,
            {**CALL, "call_id": "k2"},
            {**OUTPUT, "call_id": "k2", "output": [{"type": "input_text", "text": "r2"}]},
            OUTPUT,
            {"role": "assistant", "content": "done"},
        )
        assert told == (Turn(f"a\n{BASH}\n{{}}\n{BASH}\n{{}}", ("r2", "r")), Turn("done"))

    def test_where_one_call_ends_and_the_next_begins(self, tmp_path: Path) -> None:
        first = {"role": "assistant", "content": "a"}
        second = {"role": "assistant", "content": "b"}
        tokens = {"generation_token_ids": [1], "prompt_token_ids": [0]}
        assert self.turns(tmp_path, first, second) == (Turn("a\nb"),)
        apart = (Turn("a"), Turn("b"))
        assert self.turns(tmp_path, {**first, **tokens}, second) == apart
        assert self.turns(tmp_path, first, REASONING, second) == apart
        user = {"role": "user", "content": "go on"}
        assert self.turns(tmp_path, first, user, second) == (Turn("a", ("go on",)), Turn("b"))

    def test_other_items(self, tmp_path: Path) -> None:
        mcp = {"type": "mcp_call", "id": "m", "name": "bash", "arguments": "{}", "output": "r"}
        assert self.turns(tmp_path, mcp, {"type": "web_search_call"}, 7) == (
            Turn(f"{BASH}\n{{}}", ("r",)),
            Turn("[web_search_call]"),
        )

    @pytest.mark.parametrize(
        ("second", "mask"),
        [
            ([1, 2, 3, 4, 9], ((False, False, True, True, False, True),)),
            ([1, 2, 3, 7, 9], ()),  # another context: no one sequence holds both
            ([1, 2], ()),
        ],
    )
    def test_token_masks(self, second: list[int], mask: Any, tmp_path: Path) -> None:
        def item(prompt: list[int], sampled: list[int]) -> dict[str, Any]:
            made = {"role": "assistant", "content": "x"}
            return {**made, "prompt_token_ids": prompt, "generation_token_ids": sampled}

        items = [item([1, 2], [3, 4]), item([], []), item(second, [5])]
        made = one(tmp_path, nemo(response={"output": items}))
        assert made.traces[0].masks == mask

    def test_a_rollout_without_a_response(self, tmp_path: Path) -> None:
        failed = {"_ng_failure_class": "agent_request_failed", "_ng_task_index": 4}
        path = write_lines(tmp_path / "r_failures.jsonl", failed)
        ((made,),) = everything(path).values()
        assert (made.ok, made.task, made.traces[0].turns) == (False, "", ())


class TestFiles:
    @pytest.mark.parametrize("suffix", [".gz", ".zst"])
    def test_compressed(self, suffix: str, tmp_path: Path) -> None:
        plain = agents.write(tmp_path / "plain.jsonl", 4)
        packed = tmp_path / f"packed.jsonl{suffix}"
        if suffix == ".gz":
            with plain.open("rb") as source, gzip.open(packed, "wb") as target:
                shutil.copyfileobj(source, target)
        else:
            with pa.CompressedOutputStream(str(packed), "zstd") as stream:
                stream.write(plain.read_bytes())
        with indexed([packed, write_lines(tmp_path / "x.jsonl", episode(trace("z")))]) as index:
            folder = Path(index._places._folder.name)
            assert [each.name for each in folder.iterdir()] == ["1"]
            told = {group: index.load(group) for group in index.groups}
        assert not folder.exists()
        assert told.pop("g")
        assert told == everything(plain)

    def test_nothing_is_left_of_a_file_that_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = tmp_path / "temporary"
        made.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(made))
        packed = tmp_path / "x.jsonl.gz"
        with gzip.open(packed, "wb") as file:
            file.write(b'{"nothing": 1}\n')
        with pytest.raises(adapters.FormatError):
            indexed(packed)
        assert list(made.iterdir()) == []

    @pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
    def test_our_own_tables_hold_no_transcripts(self, name: str, tmp_path: Path) -> None:
        table = read(write_lines(tmp_path / "traces.jsonl", episode(trace("a"))))
        adapters.write(table, tmp_path / name)
        with pytest.raises(adapters.FormatError, match=f"{name}: format 'advlib' holds no trans"):
            indexed(tmp_path / name)

    def test_nor_do_graded_solutions(self, tmp_path: Path) -> None:
        real = Path(__file__).parents[3] / "shared" / "rollouts" / "gsm8k"
        path = real / "example_model_solutions.jsonl"
        if not path.is_file():
            pytest.skip(f"no real rollout files: {path} is absent")
        with pytest.raises(adapters.FormatError, match="'graded_solutions' holds no transcripts"):
            indexed(path)

    def test_another_format_than_named(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "t.jsonl", episode(trace("a")))
        with pytest.raises(adapters.FormatError, match="this is a record of format 'prime_rl'"):
            indexed(path, format="verifiers")
        with pytest.raises(adapters.FormatError, match="the formats are"):
            indexed(path, format="nothing")

    @pytest.mark.parametrize("content", ["", "\n\n", '{"a": 1}\n'])
    def test_no_episode(self, content: str, tmp_path: Path) -> None:
        path = tmp_path / "t.jsonl"
        path.write_text(content)
        with pytest.raises(adapters.FormatError, match=r"t\.jsonl.*no rollouts"):
            indexed(path)

    def test_a_file_that_changed(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "t.jsonl", episode(trace("a")), episode(trace("b")))
        with indexed(path) as index:
            with path.open("ab") as file:
                file.write(b"{}\n")
            assert len(index.load("g")) == 2  # what was added later is not seen
            write_lines(path, episode(trace("b")), episode(trace("a")))
            with pytest.raises(adapters.FormatError, match=r"t\.jsonl:1: changed since"):
                index.load("g")

    def test_another_group(self, tmp_path: Path) -> None:
        with indexed(write_lines(tmp_path / "t.jsonl", episode(trace("a")))) as index:
            assert len(index) == 1
            with pytest.raises(KeyError):
                index.load("h")

    def test_odd_lines_are_read_as_the_table_reads_them(self, tmp_path: Path) -> None:
        lone = json.dumps(episode(trace("a"))).replace('"this"', r'"\ud800 this"')
        nan = json.dumps(episode(trace("b", {"r": {"score": float("nan")}})))
        marked = "\ufeff" + json.dumps(episode(trace("c")))
        path = write_lines(tmp_path / "t.jsonl", marked, lone, nan)
        ((c, a, b),) = everything(path).values()
        assert a.traces[0].turns == (Turn("\ufffd this"),)
        assert b.traces[0].reward is None
        assert c.traces[0].turns == (Turn("this"),)

    def test_progress(self, tmp_path: Path) -> None:
        path = agents.write(tmp_path / "t.jsonl", 4)
        told: list[tuple[int, int, str]] = []
        indexed(path, progress=lambda *step: told.append(step))
        assert told[-1] == (path.stat().st_size, path.stat().st_size, str(path))

    def test_memory_is_that_of_a_group(self, tmp_path: Path) -> None:
        path = tmp_path / "t.jsonl"
        with path.open("w") as file:
            for nth in range(240):
                words = f"{nth} " + "word " * 10_000
                nodes = [node({"role": role, "content": words}) for role in ("user", "assistant")]
                nodes[1]["parent"] = 0
                made = episode(trace(f"t{nth}", nodes=nodes), group=f"g{nth % 30}", id=f"e{nth}")
                file.write(json.dumps(made) + "\n")
                if nth % 4 == 0:
                    branches = [{"index": 0, "advantages": [0.125] * 10_000}]
                    update = {"version": 1, "trace_id": f"t{nth}", "branches": branches}
                    file.write(json.dumps(update) + "\n")
        assert path.stat().st_size > 24_000_000
        tracemalloc.start()
        with indexed(path) as index:
            for group in index.groups:
                assert len(index.load(group)) == 8
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8_000_000


@pytest.mark.parametrize("format", test_fuzz.SAMPLES)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_read_as_the_table_reads_them(
    tmp_path: Path, format: str, seed: int
) -> None:
    rng = random.Random(f"{format} {seed}")
    path = tmp_path / "r.jsonl"
    whole = [json.dumps(row).encode() for row in test_fuzz.SAMPLES[format]]
    compared = 0
    for _ in range(40):
        lines = list(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(lines))
            with contextlib.suppress(ValueError):  # already too damaged for this mutation
                lines[at] = rng.choice(test_fuzz.MUTATIONS)(lines[at], rng) or b"{"
        path.write_bytes(b"\n".join(lines))
        refusal = ""
        try:
            rows = read(path, reward_key="a")
        except adapters.FormatError as error:
            refusal = str(error)
        if refusal:
            with pytest.raises(adapters.FormatError, match=f"^{re.escape(refusal)}$"):
                indexed(path, reward_key="a")
            continue
        groups = everything(path, reward_key="a")
        told = of_episodes(groups)
        table = merged(of_table(rows), told)
        for group, episodes in groups.items():
            for each in episodes:
                if not each.traces:
                    assert table[group].pop(each.id) == (None, False)
        assert told == table
        compared += 1
    assert compared > 20


def merged(table: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The table's groups, those of an agent with a name of its own under their episode's."""
    found: dict[str, dict[str, Any]] = {}
    for group, rows in table.items():
        found.setdefault(group if group in told else group.rpartition("/")[0], {}).update(rows)
    return found
