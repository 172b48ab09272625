"""``advlib calibrate``: what it reads, finds, says and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from advlib import diagnostics, length_buckets, text
from tests.cli.calibrated import lines, write

FAST = ("--resamples", 200)


@pytest.fixture(scope="module")
def telling(tmp_path_factory) -> Path:
    """80 tasks of two kinds, which their prompts give away."""
    return write(tmp_path_factory.mktemp("telling") / "rollouts.jsonl", lines(80))


@pytest.fixture
def found(cli):
    """The document of a run that ends well."""

    def run(*words: object) -> dict:
        ended = cli("calibrate", *words, *FAST, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return run


def row(document: dict, kernel: str, temperature: float | str = 0.1) -> dict:
    [entry] = [k for k in document["kernels"] if k["name"] == kernel]
    [one] = [r for r in entry["estimates"] if r["temperature"] == temperature]
    return one


class TestNumbers:
    def test_they_are_those_of_the_library(self, found, telling):
        document = found(telling, "--seed", 3)
        rows = lines(80)
        rewards = np.array([r["reward"] for r in rows]).reshape(80, 4)
        prompts = [r["prompt"] for r in rows[::4]]
        different = list(dict.fromkeys(prompts))
        features = {
            "tfidf": text.fit_tfidf(different).transform(prompts),
            "words": text.fit_tfidf(different, words_only=True).transform(prompts),
            "length": length_buckets([float(len(prompt)) for prompt in prompts]),
        }
        for name, matrix in features.items():
            for temperature in (0.05, 0.1, 0.2, 0.5):
                right = diagnostics.effective_batch(
                    rewards, matrix, temperature=temperature, num_resamples=200, seed=3
                )
                one = row(document, name, temperature)
                assert one["ratio"] == pytest.approx(right.ratio, rel=1e-12)
                assert one["interval"] == pytest.approx(right.interval, rel=1e-12)
                assert one["sigma2"] == pytest.approx(right.sigma2, rel=1e-12)
                assert one["mse_kernel"] == pytest.approx(right.mse_kernel, rel=1e-12)
                assert one["ess"] == pytest.approx(right.ess, rel=1e-12)

    def test_an_infinite_temperature_is_the_mean_of_the_others(self, found, telling):
        document = found(telling, "--temperature", "inf", "--kernel", "tfidf")
        assert document["temperature"] == "inf"
        one = row(document, "tfidf", "inf")
        assert one["ratio"] == pytest.approx(1, abs=1e-12)
        assert one["ess"] == pytest.approx(31)

    def test_masked_rollouts_and_ragged_tasks(self, found, tmp_path):
        rows = lines(64)
        whole = found(write(tmp_path / "whole.jsonl", rows[:-1]), "--kernel", "tfidf")
        broken = [*rows[:-1], {**rows[-1], "reward": 1e9, "error": {"error": "Crash"}}]
        masked = found(write(tmp_path / "masked.jsonl", broken), "--kernel", "tfidf")
        assert masked["kernels"] == whole["kernels"]
        assert masked["coverage"]["invalid"] == {"failed": 1}

    def test_a_task_is_one_in_every_file_and_step(self, found, tmp_path):
        rows = lines(40)
        first = write(tmp_path / "a.jsonl", [{**r, "step": 1} for r in rows[::2]])
        second = write(tmp_path / "b.jsonl", [{**r, "step": 2} for r in rows[1::2]])
        document = found(first, second, "--kernel", "words")
        assert document["tasks"]["count"] == document["tasks"]["with_two_or_more"] == 40
        assert any("several training steps" in told for told in document["warnings"])

    def test_one_rollout_a_task_is_enough(self, found, tmp_path):
        document = found(write(tmp_path / "a.jsonl", lines(200, 1)), "--kernel", "words")
        assert document["method"] == "residual"
        one = row(document, "words")
        assert one["ratio"] > 1
        assert one["sigma2"] is one["mse_kernel"] is one["mse_loo"] is None

    def test_components_and_counted_failures(self, found, tmp_path):
        rows = [{**r, "metrics": {"half": r["reward"] / 2}} for r in lines(40)]
        path = write(tmp_path / "a.jsonl", rows)
        whole, half = (
            row(found(path, "--kernel", "words", *more), "words")
            for more in ((), ("--reward", "half"))
        )
        assert half["sigma2"] == pytest.approx(whole["sigma2"] / 4)
        assert half["ratio"] == pytest.approx(whole["ratio"])
        rows[0] = {**rows[0], "error": "broke"}
        path = write(tmp_path / "b.jsonl", rows)
        document = found(path, "--count-as-zero", "failed")
        assert document["coverage"]["counted_as_zero"] == {"failed": 1}


class TestAdvice:
    def test_prompts_that_tell(self, found, telling):
        document = found(telling)
        assert document["advice"].startswith("Use gs1 with TF-IDF")
        assert "at T = 0.1" in document["advice"]

    def test_prompts_that_do_not(self, found, tmp_path):
        path = write(tmp_path / "a.jsonl", lines(300, 6, telling=False))
        advice = found(path, "--kernel", "length")["advice"]
        assert advice.startswith("The kernel does not help here, so use batch_leave_one_out")

    def test_the_temperature_settled_on_beforehand(self, found, telling):
        assert "T = 0.5" in found(telling, "--temperature", "0.5,0.2")["advice"]
        assert "T = 0.1" in found(telling, "--temperature", "0.5,0.1")["advice"]

    def test_few_tasks_are_no_ground_for_advice(self, found, tmp_path):
        """A handful can show any ratio, with an interval that looks sure of it."""
        document = found(write(tmp_path / "a.jsonl", lines(63)))
        assert document["advice"].startswith("Too few tasks to choose by")
        assert any("63 tasks: below 64" in told for told in document["warnings"])
        whole = found(write(tmp_path / "b.jsonl", lines(64)))
        assert whole["advice"].startswith("Use gs1")
        assert whole["warnings"] == []

    def test_equal_rewards(self, found, tmp_path):
        rows = [{**r, "reward": 1.0} for r in lines(40)]
        document = found(write(tmp_path / "a.jsonl", rows))
        assert document["advice"].startswith("Nothing to choose: every reward is the same")
        assert row(document, "tfidf")["ratio"] is None


class TestTooFew:
    def test_one_task(self, found, tmp_path):
        document = found(write(tmp_path / "a.jsonl", lines(1)))
        assert document["advice"] == (
            "Nothing can be estimated: a batch of 32 needs 32 tasks with a measured reward, "
            "and 1 task of 1 has that."
        )
        assert all(not kernel["estimates"] for kernel in document["kernels"])

    def test_a_smaller_batch_is_named_and_works(self, found, tmp_path):
        path = write(tmp_path / "a.jsonl", lines(20))
        assert "--batch 20" in found(path)["advice"]
        assert row(found(path, "--batch", 20), "words")["num_tasks"] == 20

    def test_nothing_measured(self, found, tmp_path):
        rows = [{**r, "error": "broke", "prompt": None} for r in lines(3)]
        document = found(write(tmp_path / "a.jsonl", rows))
        assert "0 tasks of 3 have that" in document["advice"]
        assert document["kernels"] == []

    def test_a_method_that_needs_more(self, cli, tmp_path):
        path = write(tmp_path / "a.jsonl", lines(40, 1))
        ended = cli("calibrate", path, "--method", "rao_blackwell")
        assert ended.code == 0
        assert "0 tasks of 40 have that" in " ".join(ended.out.split())
        assert "two measured rewards" in " ".join(ended.out.split())


class TestFit:
    def test_by_default_the_prompts_themselves(self, found, telling):
        document = found(telling, "--kernel", "tfidf")
        told = document["kernels"][0]["features"]
        assert "fitted on the prompts of these tasks (" in told

    @pytest.mark.parametrize("field", ["prompt", "question", "problem"])
    def test_lines_of_prompts(self, found, telling, tmp_path, field):
        prompts = ["river stone", "apples market", "river"]
        path = write(tmp_path / "train.jsonl", [{field: prompt} for prompt in prompts])
        document = found(telling, "--kernel", "words", "--fit", path)
        assert document["kernels"][0]["features"] == f"4 words, fitted on 3 prompts of {path}"
        assert document["fit"] == str(path)

    def test_rollouts_and_a_fit_that_was_saved(self, found, telling, tmp_path):
        rows = lines(50, seed=7)
        other = write(tmp_path / "other.jsonl", rows)
        fitted = text.fit_tfidf(list(dict.fromkeys(r["prompt"] for r in rows)))
        fitted.save(tmp_path / "fit.json")
        one = found(telling, "--kernel", "tfidf", "--fit", other)
        two = found(telling, "--kernel", "tfidf", "--fit", tmp_path / "fit.json")
        assert row(one, "tfidf") == row(two, "tfidf")

    def test_a_fit_of_the_other_kernel(self, cli, telling, tmp_path):
        text.fit_tfidf(["river"], words_only=True).save(tmp_path / "fit.json")
        ended = cli("calibrate", telling, "--kernel", "tfidf", "--fit", tmp_path / "fit.json")
        assert ended.code == 2
        assert "for the kernel words" in ended.err

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ('{"text": "river"}\n', ":1: wanted rollouts, or JSON lines with `prompt`"),
            ('{"prompt": "river"}\n{"prompt": 3}\n', ":2: wanted"),
            ('{"prompt": "river"}\nriver\n', ":2: wanted"),
            ("", "the file is empty"),
            ('{"format": "advlib.tfidf/1"}', "words must be different strings"),
        ],
    )
    def test_a_file_without_prompts(self, cli, telling, tmp_path, content, told):
        path = tmp_path / "train.jsonl"
        path.write_text(content)
        ended = cli("calibrate", telling, "--fit", path)
        assert ended.code == 2
        assert told in ended.err
        assert str(path) in ended.err

    def test_nothing_to_fit(self, cli, telling):
        ended = cli("calibrate", telling, "--kernel", "length", "--fit", telling)
        assert ended.code == 2
        assert "nothing else has to be fitted" in ended.err


class TestEmbeddings:
    def test_rows_follow_the_tasks_as_they_appear(self, found, telling, tmp_path):
        one_hot = np.eye(2)[np.arange(80) % 2]
        np.save(tmp_path / "kind.npy", one_hot)
        document = found(telling, "--kernel", tmp_path / "kind.npy", "--kernel", "words")
        assert [kernel["title"] for kernel in document["kernels"]] == [
            "kind.npy",
            "TF-IDF, words only",
        ]
        best = row(document, str(tmp_path / "kind.npy"))
        assert best["ratio"] > row(document, "words")["ratio"] - 0.05
        assert best["ess"] < 16

    def test_no_prompt_is_needed(self, found, cli, tmp_path):
        rows = lines(40)
        for one in rows:
            one["prompt"] = None
        path = write(tmp_path / "a.jsonl", rows)
        ended = cli("calibrate", path)
        assert ended.code == 2
        assert f"40 tasks of 40 have no prompt to compare: {path}:1" in ended.err
        np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
        assert found(path, "--kernel", tmp_path / "x.npy")["method"] == "rao_blackwell"

    @pytest.mark.parametrize(
        ("array", "told"),
        [
            (np.zeros((79, 2)), "79 rows for 80 tasks; wanted one row a task, in the order"),
            (np.zeros(80), "wanted numbers of shape (80, D)"),
            (np.array([["a"]] * 80), "wanted numbers of shape (80, D)"),
            (np.full((80, 2), np.nan), "row 1 holds NaN"),
            (np.array([{}] * 80, dtype=object), "no NumPy array of numbers"),
        ],
    )
    def test_what_is_refused(self, cli, telling, tmp_path, array, told):
        np.save(tmp_path / "x.npy", array, allow_pickle=True)
        ended = cli("calibrate", telling, "--kernel", tmp_path / "x.npy")
        assert ended.code == 2
        assert told in ended.err
        assert len(ended.err.splitlines()) == 1

    def test_an_archive_and_no_file(self, cli, telling, tmp_path):
        with (tmp_path / "x.npy").open("wb") as file:
            np.savez(file, a=np.zeros((80, 2)))
        assert "an archive" in cli("calibrate", telling, "--kernel", tmp_path / "x.npy").err
        ended = cli("calibrate", telling, "--kernel", tmp_path / "none.npy")
        assert (ended.code, "No such file" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kernel", "tf-idf"), "the kernel 'tf-idf' is not known. Did you mean tfidf?"),
        (("--temperature", "0.1,x"), "--temperature x: wanted numbers"),
        (("--temperature", "0"), "--temperature 0: wanted numbers"),
        (("--temperature", "nan"), "--temperature nan: wanted numbers"),
        (("--method", "best"), "--method 'best' is not known"),
        (("--batch", "1"), "--batch"),
        (("--output", "out.csv"), "--output out.csv: the name must end in .json"),
        (("--html", "none/out.html"), "--html none/out.html: the folder none is not there"),
        (("--gate-on", "upper"), "--gate-on 'upper' is not known"),
        (("--gate-metrics", "m.json"), "--gate-metrics needs --gate"),
    ],
)
def test_bad_usage_is_one_line(cli, telling, words, told):
    ended = cli("calibrate", telling, *words)
    assert ended.code == 2
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""


def test_an_input_is_not_written_over(cli, telling, tmp_path):
    gate = tmp_path / "gate.json"
    gate.write_text('[{"metric": "tasks", "min": 1}]')
    ended = cli("calibrate", telling, "--gate", gate, "--output", gate)
    assert ended.code == 2
    assert "that file is an input" in ended.err


def test_the_json_file_holds_what_is_printed(cli, telling, tmp_path):
    out = tmp_path / "report.json"
    ended = cli("calibrate", telling, *FAST, "--json", "--output", out)
    assert out.read_text() == ended.out


def test_the_table_for_people(cli, telling, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli("calibrate", telling, *FAST, "--html", tmp_path / "report.html")
    assert ended.code == 0
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    assert "mean of the others" in ended.out
    assert "prompt length" in ended.out
    assert "written to" in ended.out
    assert cli("calibrate", telling, *FAST, "--quiet").out == ""


def test_several_policies_and_prompts_are_said(cli, tmp_path):
    rows = [{**r, "model": "ab"[n % 2]} for n, r in enumerate(lines(33))]
    ended = cli("calibrate", write(tmp_path / "a.jsonl", rows), *FAST)
    assert "33 tasks of 33 have rollouts of several policies" in ended.err


def test_real_graded_solutions(cli, real_rollouts):
    """The known numbers of this table; each is one of a few thousand random batches."""
    folder = real_rollouts / "gsm8k"
    ended = cli(
        "calibrate",
        folder / "example_model_solutions.jsonl",
        "--fit",
        folder / "train.jsonl",
        "--kernel",
        "tfidf",
        "--temperature",
        "0.1",
        "--json",
    )
    assert ended.code == 0
    document = json.loads(ended.out)
    one = row(document, "tfidf")
    assert one["sigma2"] == pytest.approx(0.1535, abs=0.002)
    assert one["mse_loo"] == pytest.approx(0.0896, abs=0.002)
    assert one["mse_kernel"] == pytest.approx(0.0930, abs=0.002)
    assert one["ratio"] == pytest.approx(0.986, abs=0.002)
    assert one["interval"][1] < 1
    assert document["tasks"] == {
        "count": 1319,
        "with_two_or_more": 1319,
        "with_one": 0,
        "with_none": 0,
    }
    assert document["advice"].startswith("The kernel does not help here")
    assert "several policies" in ended.err
