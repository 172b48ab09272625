"""The study behind the documented coverage runs, and the page shows its committed record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "benchmarks" / "study_effective_batch.py"
RECORD = ROOT / "benchmarks" / "results" / "study_effective_batch.json"


def test_the_study_runs(tmp_path):
    path = tmp_path / "new" / "study.json"
    done = subprocess.run(
        [sys.executable, STUDY, "--repeats", "3", "--resamples", "8", "--json", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text(encoding="utf-8"))
    committed = json.loads(RECORD.read_text(encoding="utf-8"))
    assert found["repeats"] == 3
    for new, old in zip(found["settings"], committed["settings"], strict=True):
        assert new["truth"] == old["truth"]
        assert 0 <= new["coverage"] <= 1


def test_the_page_shows_the_record():
    page = (ROOT / "docs" / "diagnostics" / "effective-batch.md").read_text(encoding="utf-8")
    committed = json.loads(RECORD.read_text(encoding="utf-8"))
    assert committed["repeats"] == 1000
    for found in committed["settings"]:
        row = f"| {found['name']} | {found['num_tasks']} × {found['num_rollouts']} |"
        [line] = [
            line
            for line in page.splitlines()
            if line.startswith(row) and f"`{found['method']}`" in line
        ]
        assert f"| {100 * found['coverage']:.1f}% |" in line
