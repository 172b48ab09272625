"""Questions and scores: what is a measurement, what is a right answer, what is held out."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from advlib.trainer.environments import (
    Question,
    Score,
    final_number,
    is_held_out,
    jsonl_tasks,
    numeric_score,
    question_set,
    reasoning_gym_tasks,
    score_all,
)
from advlib.trainer.environments._numeric import read_number
from advlib.trainer.environments._split import divide

REAL = Path(__file__).parents[3] / "shared" / "rollouts" / "gsm8k"


def scored(value: object):
    def scorer(question, response):
        if isinstance(value, BaseException):
            raise value
        return value

    tasks = question_set(["a"], scorer)
    return score_all(tasks, tasks.prompts([0]), ["x"])


class TestMeasurements:
    @pytest.mark.parametrize(
        ("value", "reward"),
        [
            (1, 1.0),
            (True, 1.0),
            (0.25, 0.25),
            (np.float32(0.5), 0.5),
            (np.array(2.0), 2.0),
            (Fraction(1, 4), 0.25),
            (Score(0.0, "wrong"), 0.0),
        ],
    )
    def test_numbers_are(self, value, reward):
        found = scored(value)
        assert found.where.tolist() == [True]
        assert found.rewards.tolist() == [reward]
        assert found.reasons == ("",)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "gave no reward"),
            (Score(None, "the sandbox is down"), "the sandbox is down"),
            (float("nan"), "gave nan"),
            (float("inf"), "gave inf"),
            (-1e300, "gave -1e+300, more than float32 holds"),
            ("1", "gave str, not a number"),
            (Decimal(1), "gave Decimal, not a number"),
            (RuntimeError("timed out"), "RuntimeError: timed out"),
        ],
    )
    def test_anything_else_is_none_and_says_why(self, value, reason):
        found = scored(value)
        assert found.where.tolist() == [False]
        assert reason in found.reasons[0]

    def test_one_that_fails_leaves_the_others(self):
        tasks = question_set(["a", "b", "c"], lambda q, r: 1 / float(r))
        found = score_all(tasks, tasks.prompts([0, 1, 2]), ["1", "0", "2"])
        assert found.where.tolist() == [True, False, True]
        assert found.rewards[[0, 2]].tolist() == [1.0, 0.5]

    def test_an_interrupt_passes_through(self):
        with pytest.raises(KeyboardInterrupt):
            scored(KeyboardInterrupt())

    def test_one_response_a_question(self):
        tasks = question_set(["a"], lambda q, r: 1)
        with pytest.raises(ValueError, match="one to one; got 1 and 2"):
            score_all(tasks, tasks.prompts([0]), ["x", "y"])


class TestQuestions:
    def test_ids_are_places_where_none_is_given(self):
        assert [q.id for q in question_set(["a", "b"], len).prompts([1, 0])] == ["1", "0"]

    def test_two_with_one_id_are_refused(self):
        with pytest.raises(ValueError, match="questions 0 and 1 have one id, 'x'"):
            question_set([Question("x", "a"), Question("x", "b")], len)

    def test_none_and_what_is_no_question_are_refused(self):
        with pytest.raises(ValueError, match="at least one"):
            question_set([], len)
        with pytest.raises(TypeError, match=r"questions\[0\] must be a Question or a text"):
            question_set([3], len)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("It is 18.", 18),
            ("a\n#### 1,234", 1234),
            ("#### $5.50", Fraction(11, 2)),
            ("#### -3", -3),
            ("#### −3", -3),
            ("#### 7\nno, that was wrong\n#### 8", 8),
            (r"so \boxed{12} it is, not 13", 12),
            (r"\boxed{\frac{3}{4}}", Fraction(3, 4)),
            (r"\boxed{3/4}", Fraction(3, 4)),
            (r"first \boxed{1}, then \boxed{2}", 2),
            ("0.5 of 10 is 5.0", 5),
            ("16 - 3 - 4 = 9 eggs", 9),
            ("from 3-5", 5),
            ("1e3", 1000),
            ("50%", 50),
        ],
    )
    def test_found(self, text, number):
        assert final_number(text) == number

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "no number",
            "#### none",
            r"7 \boxed{none}",
            r"7 \boxed{x + 1}",
            "#### 1e999999999",
            "#### " + "9" * 5000,
            "#### 1/0",
            "#### 1,2,3",
        ],
    )
    def test_not_found(self, text):
        assert final_number(text) is None

    def test_equality_is_exact(self):
        assert read_number("0.1") == Fraction(1, 10)
        assert numeric_score(Fraction(1, 10), "#### 0.1000").reward == 1
        assert numeric_score(Fraction(1, 10), "#### 0.10000000000000001").reward == 0

    def test_a_box_that_is_never_closed_is_none(self):
        assert final_number(r"\boxed{12") == 12  # the last number: it was cut off, not marked

    def test_the_penalty_of_form_is_for_right_and_wrong_alike(self):
        for response, reward in (("#### 4", 1), ("it is 4", 0.9), ("#### 5", 0), ("it is 5", -0.1)):
            assert numeric_score(Fraction(4), response, 0.1).reward == pytest.approx(reward)


class TestJsonLines:
    def write(self, path: Path, *rows: object) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def test_questions_answers_and_places(self, tmp_path):
        path = self.write(
            tmp_path / "made.jsonl",
            {"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"},
            {"question": "half?", "answer": 0.5},
        )
        tasks = jsonl_tasks(path, wording="Q: {} A:")
        first, second = tasks.prompts([0, 1])
        assert first == Question("made.jsonl:1", "Q: 2 + 2? A:", Fraction(4), "made")
        assert tasks.score(second, "so 1/2").reward == 1

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("[1]", "made.jsonl:2: wanted a JSON object"),
            ("{", "made.jsonl:2: wanted a JSON object"),
            ('{"answer": 1}', "made.jsonl:2: wanted the question as a text in 'question'"),
            ('{"question": "x", "answer": "none"}', "made.jsonl:2: wanted a number"),
            ('{"question": "x", "answer": true}', "made.jsonl:2: wanted a number"),
            ('{"question": "x"}', "made.jsonl:2: wanted a number"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path, line, told):
        path = tmp_path / "made.jsonl"
        path.write_text('{"question": "x", "answer": 1}\n' + line + "\n")
        with pytest.raises(ValueError, match=told):
            jsonl_tasks(path)

    def test_a_byte_order_mark_is_passed_over(self, tmp_path):
        path = tmp_path / "made.jsonl"
        line = b'{"question": "x", "answer": "#### 5"}\r\n'
        path.write_bytes(b"\xef\xbb\xbf" + line + line)
        assert [q.answer for q in jsonl_tasks(path).questions] == [5, 5]

    def test_an_empty_file_and_a_bad_wording(self, tmp_path):
        with pytest.raises(ValueError, match="holds no question"):
            jsonl_tasks(self.write(tmp_path / "empty.jsonl"))
        with pytest.raises(ValueError, match="wording must hold one"):
            jsonl_tasks(self.write(tmp_path / "empty.jsonl"), wording="no field")

    def test_a_wording_that_asks_for_a_box(self, tmp_path):
        path = self.write(tmp_path / "made.jsonl", {"question": "1 + 1?", "answer": 2})
        boxed = jsonl_tasks(path, wording="{question} Answer in \\boxed{}.")
        assert boxed.prompts([0])[0].text == "1 + 1? Answer in \\boxed{}."
        assert jsonl_tasks(path, wording="Q: {} A:").prompts([0])[0].text == "Q: 1 + 1? A:"
        for wording in ("{} and {}", "{question} {question}"):
            with pytest.raises(ValueError, match="wording must hold one"):
                jsonl_tasks(path, wording=wording)

    def test_real_problems(self):
        if not REAL.is_dir():
            pytest.skip(f"the folder of real files, {REAL}, is absent")
        tasks = jsonl_tasks(REAL / "test.jsonl")
        assert len(tasks) == 1319
        lines = [json.loads(line) for line in (REAL / "test.jsonl").read_text().splitlines()]
        # A worked solution is a right response to its own question, and to few others.
        questions = tasks.prompts(range(1319))
        solutions = [line["answer"] for line in lines]
        assert score_all(tasks, questions, solutions).rewards.all()
        assert score_all(tasks, questions, solutions[1:] + solutions[:1]).rewards.mean() < 0.05


@pytest.fixture(scope="module")
def gym_tasks():
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    return reasoning_gym_tasks(
        {"chain_sum": {"max_terms": 3}, "leg_counting": {}},
        weights={"chain_sum": 3},
        num_train=60,
        num_held_out=20,
        wording="{} Answer:",
    )


class TestReasoningGym:
    def test_parts_by_the_hash_of_the_question(self, gym_tasks):
        for part, held_out in zip(gym_tasks, (False, True), strict=True):
            for question in part.prompts(range(len(part))):
                assert question.text.endswith(" Answer:")
                assert is_held_out(question.text) == held_out

    def test_the_mixture_has_its_weights(self, gym_tasks):
        kinds = [question.kind for question in gym_tasks.train.prompts(range(60))]
        assert 36 < kinds.count("chain_sum") < 55  # three quarters of 60, within three deviations
        turned = reasoning_gym_tasks(
            ["chain_sum", "leg_counting"],
            weights={"leg_counting": 9},
            num_train=60,
            num_held_out=20,
        )
        kinds = [question.kind for question in turned.train.prompts(range(60))]
        assert 0 < kinds.count("chain_sum") < 14

    def test_the_data_set_scores_its_own_answers(self, gym_tasks):
        questions = gym_tasks.train.prompts(range(20))
        for wording in ("{}", "let me see <answer>{}</answer>"):
            right = [wording.format(question.answer["answer"]) for question in questions]
            assert score_all(gym_tasks.train, questions, right).rewards.tolist() == [1.0] * 20
        assert score_all(gym_tasks.train, questions, ["no"] * 20).rewards.max() < 0.1

    def test_names_and_settings_that_are_not_known(self, gym_tasks):
        with pytest.raises(ValueError, match=r"refuses chain_sums: .*not registered"):
            reasoning_gym_tasks("chain_sums")
        with pytest.raises(ValueError, match="unexpected keyword argument 'foo'"):
            reasoning_gym_tasks({"chain_sum": {"foo": 1}})
        with pytest.raises(ValueError, match="weights name 'other'"):
            reasoning_gym_tasks("chain_sum", weights={"other": 1.0})

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"num_train": 0}, "num_train must be at least 1; got 0"),
            ({"num_held_out": 2.5}, "num_held_out must be an integer; got 2.5"),
            ({"weights": {"chain_sum": "a"}}, r"weights\['chain_sum'\] must be a number; got str"),
        ],
    )
    def test_numbers_that_are_not_possible(self, gym_tasks, options, told):
        with pytest.raises((TypeError, ValueError), match=told):
            reasoning_gym_tasks("chain_sum", **options)


def test_too_few_different_questions_are_told():
    drawn = (Question(str(n), f"text {n % 7}") for n in range(10**9))
    with pytest.raises(ValueError, match="toy: 9 different questions to train on are wanted"):
        divide(drawn, 9, 0, what="toy")
