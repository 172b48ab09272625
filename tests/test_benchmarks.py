"""The benchmarks run, agree with their reference and write their record; times decide nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / "benchmarks" / "run.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    # An interpreter without peers, so that no test depends on what else is installed.
    return subprocess.run(
        [sys.executable, RUN, "--tiny", "--rounds", "1", "--repeats", "3", *arguments],
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("bench") / "report.json"
    themes = "group,tokens,gae,encode"
    done = run("--only", themes, "--json", path, "--peers-python", sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("theme", ["group", "tokens", "gae", "encode"])
def test_every_case_agrees_and_is_timed(report: dict, theme: str) -> None:
    results = report["themes"][theme]["results"]
    assert results
    for case, by_name in results.items():
        ours = [name for name in by_name if name.startswith("advlib")]
        assert ours, case
        for name in ours:
            assert by_name[name]["error"] < 1e-4, (case, name)
            assert by_name[name]["calls"] == 3, (case, name)
            assert 0 < by_name[name]["min_ms"] <= by_name[name]["median_ms"]


def test_peers_that_are_not_installed_are_named(report: dict) -> None:
    for theme in report["themes"].values():
        for name, reason in theme["skipped"].items():
            assert "not installed" in reason, name
    assert "verl" in report["themes"]["gae"]["skipped"]


def test_record_names_the_machine_and_no_place(report: dict) -> None:
    text = json.dumps(report)
    assert report["machine"]["processor"]
    assert report["machine"]["cores"] >= 1
    assert str(Path(sys.executable).parent) not in text


def test_unknown_theme_is_refused() -> None:
    done = run("--only", "tokens,speed")
    assert done.returncode == 2
    assert "speed" in done.stderr


def test_kernel_agrees_with_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json"
    script = RUN.parent / "bench_kernel.py"
    done = subprocess.run(
        [sys.executable, script, "--tiny", "--json", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(path.read_text(encoding="utf-8"))["lines"]
    assert len(lines) == 3
    for line in lines:
        assert line["error"] < 1e-5, line["case"]
        assert line["advlib"]["min_s"] > 0
        assert line["advlib"]["peak_mb"] >= line["advlib"]["before_mb"]


def test_the_trainer_is_timed_with_its_shares(tmp_path: Path) -> None:
    path = tmp_path / "trainer.json"
    script = RUN.parent / "bench_trainer.py"
    done = subprocess.run(
        [sys.executable, script, "--tiny", "--json", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    for dtype in ("float32", "bfloat16"):
        assert results[dtype]["sampled_tokens_per_second"] > 0
        assert results[dtype]["trained_tokens_per_second"] > 0
    assert results["float32"]["disagreement"] < 1e-3
    assert 0 < results["a step of train"]["advantage_share"] < 1
