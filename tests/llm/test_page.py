"""The page's code runs, on a small folder in the place of the one it names, and the benchmark."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.llm import skip_without_extra

skip_without_extra()
ROOT = Path(__file__).parents[2]


def test_the_code_of_the_page_runs(folders, tmp_path, monkeypatch):
    shutil.copytree(folders("qwen3"), tmp_path / "models/Qwen3-0.6B")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/trainer/llm.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in page.split("```py\n")[1:]]
    assert len(blocks) == 2
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["trained"].steps == 2
    assert (tmp_path / "runs/first/metrics.jsonl").read_text().count("\n") == 2
    assert names["mesh"].size == 8


@pytest.fixture(scope="module")
def speed():
    spec = importlib.util.spec_from_file_location("llm_speed", ROOT / "benchmarks/llm_speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_counts_what_it_times(speed):
    record = speed.measure(
        argparse.Namespace(
            shape="tiny", rows=4, prompt=8, new=4, micro_batches=2, lora_rank=2, repeats=1
        )
    )
    seconds = record["seconds"]
    sampled = record["sampled_tokens_per_second"] * seconds["sampling"]
    assert sampled == pytest.approx(round(sampled))
    assert 4 <= sampled <= 16
    assert record["trained_tokens_per_second"] * seconds["training"] == pytest.approx(sampled)
    read = record["read_tokens_per_second"] * seconds["training"]
    assert read == pytest.approx(sampled + 4 * 8)
    assert 0 < record["estimator_share"] < 1


def test_the_large_shape_is_that_of_qwen3(speed):
    shapes = speed.parameter_shapes(speed.SHAPES["qwen3-0.6b"])
    assert sum(speed.np.prod(shape) for shape in shapes.values()) == 596_049_920
