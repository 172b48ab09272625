"""``advlib score --estimator gs1``: prompts come from the table, the kernel is recorded."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import advlib
from advlib import adapters, text
from advlib.cli._errors import Refusal
from advlib.cli._estimators import advantages, baselines
from advlib.cli._samples import Samples, samples
from tests.adapters import made as rows_of
from tests.cli.calibrated import lines, write
from tests.cli.made import table_of

PROMPTS = ["red apples", "red apples", "green pears", "green pears", "blue"]
REWARDS = [1.0, 0.0, 0.5, 0.0, 1.0]


def data(**columns) -> Samples:
    rows = [{"reward": r, "prompt": p} for r, p in zip(REWARDS, PROMPTS, strict=True)]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return samples(table_of(rows))


def scored(options: dict, **columns) -> np.ndarray:
    return advantages("gs1", data(**columns), options)


def test_numbers_by_hand():
    """At a low temperature only the equal prompt counts; the lone one is unlike all the others."""
    found = scored({"temperature": 1e-3})
    np.testing.assert_allclose(found, [1, -1, 0.5, -0.5, 0.625], atol=1e-12)
    base = baselines("gs1", data(), {"temperature": 1e-3}, found)
    np.testing.assert_allclose(base, [0, 1, 0, 0.5, 0.375], atol=1e-12)


def test_at_an_infinite_temperature_it_is_the_mean_of_the_others():
    right = advantages("batch_leave_one_out", data(), {})
    np.testing.assert_allclose(scored({"temperature": float("inf")}), right, atol=1e-12)


@pytest.mark.parametrize("kernel", ["tfidf", "words", "length"])
def test_it_is_the_function_of_the_library(kernel):
    prompts = [f"task {n} of {'ab'[n % 2] * 5}" for n in range(40)]
    rewards = np.random.default_rng(0).random(40)
    table = table_of([{"reward": r, "prompt": p} for r, p in zip(rewards, prompts, strict=True)])
    found = advantages("gs1", samples(table), {"kernel": kernel, "temperature": 0.2})
    if kernel == "length":
        features = advlib.length_buckets([float(len(p)) for p in prompts])
    else:
        fitted = text.fit_tfidf(prompts, words_only=kernel == "words")
        features = fitted.transform(prompts)
    right = advlib.gs1(features, rewards.astype(np.float32), temperature=0.2)
    np.testing.assert_allclose(found, right, atol=1e-5)


def test_a_masked_row_changes_nothing_and_needs_no_prompt():
    reasons = [None, None, None, None, "masked"]
    prompts = [*PROMPTS[:4], None]
    found = scored({}, invalid_reason=reasons, prompt=prompts)
    assert found[4] == 0
    whole = samples(
        table_of(
            [{"reward": r, "prompt": p} for r, p in zip(REWARDS[:4], PROMPTS[:4], strict=True)]
        )
    )
    np.testing.assert_allclose(found[:4], advantages("gs1", whole, {}), atol=1e-12)


def test_a_valid_row_without_a_prompt_is_named():
    with pytest.raises(Refusal, match=r"null in 2 valid rows of 5: made.jsonl:1, made.jsonl:3"):
        scored({}, prompt=[None, "a", None, "b", "c"])


def test_one_row_alone_has_nothing_to_compare_with():
    one = samples(table_of([{"reward": 2.0, "prompt": "a"}]))
    with pytest.warns(advlib.AdvantageWarning):
        zero = advantages("gs1", one, {})
    with pytest.warns(advlib.AdvantageWarning):
        raw = advantages("gs1", one, {"fallback": "raw"})
    assert (zero[0], raw[0]) == (0, 2)
    assert np.isnan(baselines("gs1", one, {}, zero)).all()


@pytest.mark.parametrize(
    ("format", "rows"),
    [
        ("verifiers", [rows_of.legacy(n % 3, n % 2, f"question {n % 3}") for n in range(6)]),
        (
            "prime_rl",
            [rows_of.episode(rows_of.trace(f"t{n}"), group=f"g{n}", key=f"k{n}") for n in range(3)],
        ),
        ("nemo_gym", [rows_of.nemo(n % 3, n // 3, n % 2) for n in range(6)]),
        (
            "graded_solutions",
            [
                {"question": f"how {w}", "a": {"is_correct": True}, "b": {"is_correct": False}}
                for w in ("many", "far")
            ],
        ),
    ],
)
def test_every_format(cli, tmp_path, format, rows):
    path = rows_of.write_lines(tmp_path / "rollouts.jsonl", *rows)
    out = tmp_path / "out.parquet"
    ended = cli("score", path, "--format", format, "-e", "gs1", "-o", out)
    assert ended.code == 0, ended.err
    table = adapters.read(out)
    values = np.array(table["advantage"].to_pylist())
    assert np.isfinite(values).all()
    # An own table keeps the prompts, and gives the same numbers again.
    own = tmp_path / "own.parquet"
    adapters.write(adapters.read(path), own)
    again = tmp_path / "again.parquet"
    assert cli("score", own, "-e", "gs1", "-o", again).code == 0
    np.testing.assert_array_equal(adapters.read(again)["advantage"].to_pylist(), values)


def test_the_kernel_is_recorded(cli, tmp_path):
    path = write(tmp_path / "rollouts.jsonl", lines(10))
    out = tmp_path / "out.parquet"
    assert cli("score", path, "-e", "gs1", "-o", out).code == 0
    settings = json.loads(pq.read_schema(out).metadata[b"advlib.score"])
    assert settings["options"] == {"kernel": "tfidf", "temperature": 0.1}
    words = ("--kernel", "words", "--temperature", "inf", "--fit", path)
    assert cli("score", path, "-e", "gs1", *words, "-o", out).code == 0
    settings = json.loads(pq.read_schema(out).metadata[b"advlib.score"])
    assert settings["options"] == {"kernel": "words", "temperature": "inf", "fit": str(path)}


def test_a_scored_file_has_no_prompts_left(cli, tmp_path):
    path, out = write(tmp_path / "rollouts.jsonl", lines(4)), tmp_path / "out.jsonl"
    assert cli("score", path, "-e", "gs1", "-o", out).code == 0
    ended = cli("score", out, "-e", "gs1")
    assert ended.code == 2
    assert "prompt is null in 16 valid rows of 16" in ended.err
    assert "score the rollouts themselves" in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-e", "grpo", "--kernel", "words"), "--kernel is an option of gs1; grpo"),
        (("-e", "gs1", "--kernel", "word"), "--kernel of gs1 'word' is not known. Did you mean"),
        (("-e", "gs1", "--temperature", "0"), "temperature"),
        (("-e", "gs1", "--kernel", "length", "--fit", "x"), "length has nothing to fit"),
        (("-e", "gs1", "--fit", "x"), "x: No such file"),
        (("-e", "gs1", "--fallback", "batch_mean"), "Known: zero, raw"),
    ],
)
def test_bad_usage_is_one_line(cli, tmp_path, words, told):
    path = write(tmp_path / "rollouts.jsonl", lines(4))
    ended = cli("score", path, *words)
    assert ended.code == 2
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_groups_do_not_matter_so_nothing_is_said_of_them(cli, tmp_path):
    path = write(tmp_path / "rollouts.jsonl", lines(8, 1))
    assert cli("score", path, "-e", "gs1").err == ""
