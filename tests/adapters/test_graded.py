"""Questions with several graded solutions on one line."""

from __future__ import annotations

import pytest

from advlib import adapters
from tests.adapters.made import read, reported, rows, write_lines


def question(text: str = "How many?", truth: str = "3", **solutions: object) -> dict:
    return {"question": text, "ground_truth": truth, **solutions}


def graded(right: object, text: str = "because") -> dict:
    return {"is_correct": right, "solution": text}


def test_each_solution_is_a_row_of_its_own(tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl",
        question(small=graded(False), large=graded(True)),
        question("How far?", "7", small=graded(True), large=graded(True)),
    )
    found = rows(path)
    assert [row["reward"] for row in found] == [0.0, 1.0, 1.0, 1.0]
    assert [row["policy"] for row in found] == ["small", "large"] * 2
    assert [row["prompt"] for row in found] == ["How many?"] * 2 + ["How far?"] * 2
    assert {row["environment"] for row in found} == {"gsm8k"}
    assert [row["source_line"] for row in found] == [1, 1, 2, 2]
    assert [row["rollout_id"] for row in found] == [
        f"{path}:{where}" for where in ("1", "1#1", "2", "2#1")
    ]
    groups = [row["group"] for row in found]
    assert groups[0] == groups[1] != groups[2] == groups[3]


def test_the_same_question_in_two_files_is_one_task(tmp_path):
    one = write_lines(tmp_path / "a.jsonl", question(small=graded(True)))
    other = write_lines(tmp_path / "b.jsonl", question(large=graded(False)))
    assert len({row["group"] for row in rows([one, other])}) == 1


def test_one_text_with_two_answers_is_two_tasks(tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl", question(truth="3", a=graded(True)), question(truth="4", a=graded(0))
    )
    assert len({row["task"] for row in rows(path)}) == 2


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ({"solution": "no grade"}, "missing_reward"),
        (graded(None), "null_reward"),
        (graded("true"), "not_a_number_reward"),
    ],
)
def test_a_grade_that_is_none_is_no_zero(tmp_path, solution, reason):
    path = write_lines(tmp_path / "a.jsonl", question(good=graded(True), bad=solution))
    good, bad = rows(path)
    assert good["valid"]
    assert (bad["valid"], bad["reward"], bad["invalid_reason"]) == (False, None, reason)


def test_other_fields_are_no_solutions(tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl", question(a=graded(True), meta={"level": 3}, tags=["x"], n=4)
    )
    assert [row["policy"] for row in rows(path)] == ["a"]


def test_plain_questions_are_refused_by_name_and_line(tmp_path):
    path = write_lines(tmp_path / "train.jsonl", {"question": "How many?", "answer": "3"})
    with pytest.raises(adapters.FormatError, match=r"train.jsonl:1: no rollouts"):
        adapters.read(path)
    with pytest.raises(adapters.FormatError, match="`question` and an object"):
        adapters.read(path, "graded_solutions")


def test_a_plain_question_among_graded_ones_is_reported(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", question(a=graded(True)), {"question": "How many?"})
    assert reported(read(path)) == {"unrecognised": 1}


def test_a_verifiers_row_with_a_graded_column_stays_one(tmp_path):
    row = {"example_id": 0, "prompt": "p", "reward": 1, "question": "q", "judge": graded(False)}
    assert adapters.sniff(write_lines(tmp_path / "a.jsonl", row)) == "verifiers"


def test_real_solutions(shared_rollouts):
    table = read(shared_rollouts / "gsm8k" / "example_model_solutions.jsonl")
    assert table.num_rows == 4 * 1319
    assert len(set(table["group"].to_pylist())) == 1319
    assert table["valid"].to_pylist() == [True] * 4 * 1319
    assert adapters.report(table).files[0].format == "graded_solutions"
