"""Credit as annotations, and back through the readers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from advlib import adapters, grading
from advlib.adapters.annotations import ANNOTATION_SCHEMA, json_line, write_annotations
from advlib.grading import Answer, CandidateGroup, Episode, Trace, Turn
from advlib.grading._annotations import (
    grade_episode,
    token_advantages,
    trace_annotations,
    update_of,
)
from advlib.grading._outcome import GradedGroup, outcome

QUOTE = "I replace the assertion by assert True so that it passes."
FORK = ((False, True, True, False, True), (False, True, True, True))  # two branches of one node


def group(mode: str = "rewards", **privileged: str) -> CandidateGroup:
    """Three passes, one of them a hack, and a fail; one episode of two traces."""
    made = []
    for nth, reward in enumerate((1.0, 1.0, 1.0, 0.0)):
        turns = (Turn(QUOTE if nth == 2 else "I read the function first."),)
        traces = [Trace(f"t{nth}", reward, True, True, turns, FORK)]
        if nth == 0:
            traces.append(Trace("t0b", reward, True, True, turns))
            traces.append(Trace("t0c", reward, True, False, turns, FORK))
        made.append(Episode(f"e{nth}", "g", "env", "task", tuple(traces)))
    return grading.candidates(made, mode=mode, privileged=privileged)  # type: ignore[arg-type]


def answer(of: CandidateGroup, **changes: Any) -> Answer:
    label = {c.trace: c.label for c in of.candidates}
    hack = {"label": label["t2"], "hack": "confirmed", "evidence": [{"turn": 1, "quote": QUOTE}]}
    others = [{"label": label[t], "hack": "none", "evidence": []} for t in ("t0", "t1", "t3")]
    last = [[label["t3"]]] if of.mode == "advantages" else []
    verdict: dict[str, Any] = {
        "candidates": [hack, *others],
        "ranking": [[label["t0"]], [label["t1"]], *last],
        "margins": ["clear", "large"] if last else [],
        "notes": "",
    }
    return Answer(json.dumps(verdict | changes), "grade-g", "judge", 10, 20, 0.5)


def quoting(of: CandidateGroup, quote: str) -> Answer:
    """A verdict that suspects a pass and quotes something against it."""
    label = {c.trace: c.label for c in of.candidates}
    told = {"label": label["t1"], "hack": "suspected", "evidence": [{"turn": 1, "quote": quote}]}
    others = [{"label": label[t], "hack": "none", "evidence": []} for t in ("t0", "t2", "t3")]
    return answer(of, candidates=[told, *others], ranking=[[label[t] for t in ("t0", "t1", "t2")]])


class TestEvidenceThatQuotesWhatOnlyTheGraderSaw:
    SECRET = "assert frobnicate(41) == 42"

    def quote_in_the_annotation(self, quote: str, **privileged: str) -> str:
        of = group(**privileged)
        graded = outcome(of, quoting(of, quote))
        assert graded.graded
        (one,) = written(of, graded)["t1"]["info"]["gar"]["evidence"]
        return one["quote"]

    def test_is_starred_out(self) -> None:
        quote = f"it fails on {self.SECRET}!"
        told = self.quote_in_the_annotation(quote, tests=f"x\n{self.SECRET}\n")
        # The blank before it and the newline after it are in the text too, or not: 16 in a row are.
        assert told == "it fails on " + "*" * len(self.SECRET) + "!"
        assert self.quote_in_the_annotation(quote) == quote

    def test_to_its_last_character_where_the_quotation_ends_with_it(self) -> None:
        told = self.quote_in_the_annotation(f"it fails on {self.SECRET}", tests=self.SECRET)
        assert told == "it fails on " + "*" * len(self.SECRET)

    def test_unless_the_candidate_wrote_it(self) -> None:
        quote = "I read the  function first."
        assert self.quote_in_the_annotation(quote, tests="I read the function first.") == quote


def written(of: CandidateGroup, graded: GradedGroup) -> dict[str, dict[str, Any]]:
    updates = [json.loads(json_line(update_of(one))) for one in trace_annotations(of, graded)]
    return {update["trace_id"]: update for update in updates}


def test_rewards_mode_has_every_field():
    of = group()
    updates = written(of, outcome(of, answer(of)))
    assert list(updates) == [t.id for c in of.candidates for t in c.traces]
    label = {c.trace: c.label for c in of.candidates}
    # R' = 1, 1 (two traces), 0, 0; mean 3/5; f 1, 1, 1/2; lambda 1.2/1 = 1.2
    assert updates["t0"]["info"]["gar"] == {
        "label": label["t0"],
        "hack": "none",
        "evidence": [],
        "tier": 0,
        "w": 1.0,
        "f": 1.0,
        "lambda": pytest.approx(1.2, abs=1e-12),
        "fallback_reason": None,
        "grader_trace_id": "grade-g",
    }
    hack = updates["t2"]["info"]["gar"]
    assert (hack["hack"], hack["tier"], hack["w"], hack["f"]) == ("confirmed", None, None, None)
    assert hack["evidence"] == [{"turn": 1, "quote": QUOTE}]
    found = {trace: update["info"]["advantage"] for trace, update in updates.items()}
    wanted = {"t0": 0.48, "t0b": 0.48, "t1": 0.24, "t2": -0.6, "t3": -0.6}
    assert found == {trace: pytest.approx(value, abs=1e-12) for trace, value in wanted.items()}


def test_advantages_mode_has_margins_and_the_advantage():
    of = group("advantages")
    gar = written(of, outcome(of, answer(of)))["t1"]["info"]["gar"]
    assert gar["margins"] == ["clear", "large"]
    # scores 2.5, 2, 1 and 0 for the hack: mean 1.375
    assert gar["advantage"] == pytest.approx(0.625, abs=1e-12)
    assert (gar["tier"], gar["w"]) == (1, pytest.approx(2 / 3))
    assert set(gar) == {
        "label", "hack", "evidence", "tier", "w", "margins", "advantage",
        "fallback_reason", "grader_trace_id",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
@pytest.mark.parametrize("reason", ["stale", "timeout", "error", "invalid"])
def test_a_fallback_says_only_that_it_was_one(mode, reason):
    of = group(mode)
    spent = Answer("", "grade-g") if reason in ("error", "invalid") else None
    told = None if reason == "invalid" else reason
    updates = written(of, outcome(of, spent, reason=told))
    trace = "grade-g" if spent else None
    for update in updates.values():
        gar = update["info"]["gar"]
        assert gar.pop("label") in of.labels
        assert gar == {"fallback_reason": reason, "grader_trace_id": trace}
    zero = mode == "advantages"
    assert updates["t3"]["info"]["advantage"] == pytest.approx(0 if zero else -0.8, abs=1e-12)


def test_without_anything_to_grade_there_is_no_gar():
    traces = [Trace(f"t{n}", 1.0, True, True, (Turn("text"),), ((True,),)) for n in range(2)]
    of = grading.candidates([Episode(t.id, "g", "env", "task", (t,)) for t in traces])
    for update in written(of, outcome(of)).values():
        assert update["info"] == {"advantage": 0.0}
        assert update["branches"] == [{"index": 0, "advantages": [0.0]}]


def test_every_branch_carries_the_value_at_every_sampled_token():
    of = group()
    graded = outcome(of, answer(of))
    branches = written(of, graded)["t0"]["branches"]
    a = graded.credit["t0"].advantage
    assert branches == [
        {"index": 0, "advantages": [0.0, a, a, 0.0, a]},
        {"index": 1, "advantages": [0.0, a, a, a]},
    ]


def test_traces_without_masks_get_info_alone():
    of = group()
    assert "branches" not in written(of, outcome(of, answer(of)))["t0b"]


@pytest.mark.parametrize("advantage", [0.1, 1 / 3, -1e-300, 5e-324, 1.5, -0.0])
@pytest.mark.parametrize("length", [1, 2, 3, 64, 65])
def test_numbers_keep_all_of_float64(advantage, length):
    mask = tuple(n % 3 != 1 for n in range(length))
    trace = Trace("t", 0.0, True, True, (), (mask, (), mask[::-1]))
    first, empty, last = token_advantages(trace, advantage)
    assert first == tuple(advantage if m else 0.0 for m in mask)
    assert (empty, last) == ((), first[::-1])
    text = json_line({"stream": first}).decode()
    assert json.loads(text)["stream"] == list(first)
    assert repr(advantage) in text


def test_a_result_of_another_group_is_refused():
    of = group()
    graded = outcome(of, answer(of))
    with pytest.raises(ValueError, match="'h' and a result of 'g'"):
        list(trace_annotations(of._replace(id="h"), graded))


def episodes_file(path: Path, of: CandidateGroup) -> Path:
    """The group's traces as prime-rl wrote them, before they were scored."""
    lines = []
    for candidate in of.candidates:
        traces = [
            {
                "id": trace.id,
                "nodes": [
                    {"message": {"role": "user", "content": "task"}, "sampled": False},
                    {"message": {"role": "assistant", "content": "x"}, "sampled": True},
                ],
                "rewards": {"tests": {"score": trace.reward, "weight": 1.0}},
                "info": {"patch": ""},
                "ok": True,
            }
            for trace in candidate.traces
        ]
        lines.append(
            {
                "id": candidate.episode,
                "group": {"id": of.id},
                "task": {"key": "t"},
                "traces": traces,
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
def test_the_reader_gives_back_what_was_written(tmp_path, mode):
    of = group(mode)
    graded = outcome(of, answer(of))
    source = episodes_file(tmp_path / "traces.jsonl", of)
    path = tmp_path / "annotations" / "gar.jsonl"
    path.parent.mkdir()
    assert write_annotations(trace_annotations(of, graded), path) == 5
    table = adapters.read(source)  # the file beside it is found by itself
    assert adapters.report(table).reported == {"annotation_joined": 5}
    for row in table.to_pylist():
        credit = graded.credit[row["rollout_id"]]
        assert row["advantage"] == credit.advantage
        assert (row["tier"], row["hack"]) == (credit.tier, credit.hack)
        assert row["margins"] == ([0.5, 1.0] if mode == "advantages" else None)


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
def test_estimators_on_the_joined_table_give_the_same_credit(tmp_path, cli_scored, mode):
    of = group(mode)
    graded = outcome(of, answer(of))
    source = episodes_file(tmp_path / "traces.jsonl", of)
    write_annotations(trace_annotations(of, graded), tmp_path / "gar.jsonl")
    estimator = "gar" if mode == "rewards" else "rank_margin"
    scored = cli_scored(source, tmp_path / "gar.jsonl", estimator)
    for trace, credit in graded.credit.items():
        assert scored[trace] == pytest.approx(credit.advantage, abs=1e-6)


@pytest.fixture
def cli_scored(tmp_path):
    def run(source, update, estimator):
        from advlib.cli import main

        out = tmp_path / "scored.parquet"
        assert main(["score", str(source), str(update), "-e", estimator, "-o", str(out), "-q"]) == 0
        rows = pq.read_table(out).to_pylist()
        return {row["rollout_id"]: row["advantage"] for row in rows}

    return run


def test_the_token_streams_alone_give_back_the_advantage(tmp_path):
    of = group()
    graded = outcome(of, answer(of))
    source = episodes_file(tmp_path / "traces.jsonl", of)
    lines = []
    for one in trace_annotations(of, graded):
        update = update_of(one)
        if "branches" in update:
            del update["info"]["advantage"]
            lines.append(json_line(update))
    (tmp_path / "gar.jsonl").write_bytes(b"".join(lines))
    rows = adapters.read([source, tmp_path / "gar.jsonl"]).to_pylist()
    found = {row["rollout_id"]: row["advantage"] for row in rows}
    assert found["t1"] == pytest.approx(graded.credit["t1"].advantage, abs=1e-12)
    assert found["t0b"] is None


@pytest.mark.parametrize("mode", ["rewards", "advantages"])
def test_parquet_holds_the_same(tmp_path, mode):
    of = group(mode)
    graded = outcome(of, answer(of))
    paths = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    write_annotations(trace_annotations(of, graded), *paths)
    table = pq.read_table(paths[1])
    assert table.schema.equals(ANNOTATION_SCHEMA, check_metadata=False)
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    for row, update in zip(table.to_pylist(), lines, strict=True):
        assert row.pop("trace_id") == update["trace_id"]
        assert row.pop("advantage") == update["info"]["advantage"]
        assert row.pop("token_advantages") == [b["advantages"] for b in update.get("branches", [])]
        assert row.pop("graded") is True
        assert (row.pop("group"), row.pop("episode_id")[0]) == ("g", "e")
        gar = update["info"]["gar"]
        gar.pop("advantage", None)
        assert {name: value for name, value in row.items() if name in gar} == gar
        assert all(value is None for name, value in row.items() if name not in gar)


def test_row_groups_end_without_losing_a_row(tmp_path):
    of = group()
    graded = outcome(of, answer(of))
    many = [one for _ in range(500) for one in trace_annotations(of, graded)]
    assert write_annotations(many, tmp_path / "a.parquet") == 2500
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.metadata.num_rows == 2500
    assert file.metadata.num_row_groups == 3


def test_hostile_text_stays_on_its_line(tmp_path):
    of = group()
    odd = "a\u2028b\u0085c\r\nd \ud800 and four more words"
    graded = outcome(of, answer(of))
    credit = {
        trace: one._replace(evidence=(grading.Evidence(1, odd),))
        for trace, one in graded.credit.items()
    }
    graded = graded._replace(credit=credit)
    paths = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    write_annotations(trace_annotations(of, graded), *paths)
    assert len(paths[0].read_bytes().splitlines()) == 5
    assert len(paths[0].read_text().splitlines()) == 5
    assert paths[0].read_text().isascii()
    quotes = [row["evidence"][0]["quote"] for row in pq.read_table(paths[1]).to_pylist()]
    assert quotes == [odd.replace("\ud800", "?")] * 5


def test_other_suffixes_and_broken_iterators_leave_nothing(tmp_path):
    of = group()
    with pytest.raises(ValueError, match=r"written as \.jsonl or \.parquet"):
        write_annotations([], tmp_path / "a.csv")

    def broken():
        yield from trace_annotations(of, outcome(of, answer(of)))
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        write_annotations(broken(), tmp_path / "a.jsonl", tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_grade_is_an_episode_that_readers_skip(tmp_path):
    of = group(tests="assert canary() == 1")
    graded = outcome(of, answer(of))
    made = grade_episode(of, graded, environment="env")
    (trace,) = made["traces"]
    assert trace["id"] == "grade-g"
    assert trace["info"] == {
        "kind": "grade",
        "group_id": "g",
        "mode": "rewards",
        "candidates": {c.label: c.trace for c in of.candidates},
        "privileged": {"tests": 20},
        "usage": {"input_tokens": 10, "output_tokens": 20, "cost": 0.5},
    }
    (node,) = trace["nodes"]
    assert node["message"] == {"role": "assistant", "content": graded.answer.text}
    assert not trace["agent"]["trainable"]
    text = json.dumps(made)
    assert "canary" not in text
    assert "I read the function first" not in text
    source = episodes_file(tmp_path / "traces.jsonl", of)
    (tmp_path / "grades.jsonl").write_bytes(json_line(made))
    table = adapters.read([source, tmp_path / "grades.jsonl"])
    assert adapters.report(table).reported == {"grade_trace": 1}
    assert len(table) == 5


def test_a_failed_grading_leaves_a_failed_grade_or_none():
    of = group()
    assert grade_episode(of, outcome(of, reason="timeout")) is None
    spent = Answer("", "grade-g", "judge", 5, None, None)
    made = grade_episode(of, outcome(of, spent, reason="error", detail="it said no"))
    assert made["traces"][0]["nodes"] == []
    assert made["ok"] is made["traces"][0]["ok"] is False
    assert made["errors"] == [{"type": "error", "message": "it said no"}]
    invalid = grade_episode(of, outcome(of, Answer("no verdict", "grade-g")))
    assert invalid["ok"] is True
    assert invalid["traces"][0]["nodes"][0]["message"]["content"] == "no verdict"


def test_advantages_are_finite_and_sum_to_zero_over_candidates():
    of = group("advantages")
    credit = outcome(of, answer(of)).credit
    total = [credit[c.trace].advantage for c in of.candidates]
    assert math.isclose(np.sum(total), 0, abs_tol=1e-12)
