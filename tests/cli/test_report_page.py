"""The page of ``advlib report``: whole, well-formed, alone, and nobody's script."""

from __future__ import annotations

import re

import pytest

from tests.cli.reported import masked, row, run, small
from tests.cli.test_calibrate_report import Page


@pytest.fixture
def page(cli, tmp_path):
    def make(path, *words: object) -> tuple[str, Page]:
        html = tmp_path / "page.html"
        ended = cli("report", path, "--html", html, "--quiet", *words)
        assert ended.code == 0, ended.err
        source = html.read_text(encoding="utf-8")
        return source, Page(source)

    return make


def test_a_run(page, tmp_path):
    source, found = page(small(tmp_path / "run"))
    assert found.headings == [
        "What became of the rollouts",
        "Score",
        "Pass@k",
        "What was not measured, and why",
        "Rewards of 0 by cause",
        "Numbers of the measured rows",
        "What was looked at",
    ]
    text = " ".join(found.text)
    assert "The score is 0.5714" in text
    assert "the environment's session is gone" in text
    assert "7 measured; 2 masked; 1 failed; 2 omitted" in source
    assert len(found.pictures) == 2  # the strip and pass@k


def test_it_loads_nothing(page, tmp_path):
    source, found = page(small(tmp_path / "run"))
    assert "<script" not in source
    assert not [value for _, name, value in found.attributes if name in ("src", "href")]
    assert not re.search(r"url\(|@import|https?:", source)
    assert "default-src 'none'" in source


def test_names_are_text(page, tmp_path):
    hostile = "<script>alert(1)</script>\"'&\x1b[31m$facts"
    rows = [masked(0, 0, hostile, agent=hostile, failure_reason=hostile)]
    rows += [row(t, n, float(n), hostile, **{hostile: 3}) for t in (1, 2) for n in range(2)]
    rows += [row(3, 0, 0.0, failure_reason=hostile)]
    source, found = page(run(tmp_path / "run", rows))
    assert "<script" not in source
    assert "\x1b" not in source
    assert any("<script>alert(1)" in text for text in found.text)


def test_sixteen_environments_open_one_by_one(page, tmp_path):
    rows = [row(t, g, float(g), f"env{t}") for t in range(16) for g in range(2)]
    source, found = page(run(tmp_path / "run", rows))
    assert source.count("<details>") == 16
    assert "Each environment" in found.headings


def test_all_masked(page, tmp_path):
    _, found = page(run(tmp_path / "run", [masked(0, 0), masked(1, 0)]))
    assert "Nothing was measured" in " ".join(found.text)
    assert "Pass@k" not in found.headings


def test_training_steps(page, tmp_path):
    base = {"environment": "e", "format": "x", "source_file": "f", "valid": True}
    import json

    rows = [
        {**base, "task": str(t), "group": f"{t}/{s}", "reward": float((t * s) % 3 == 0)}
        | {"step": s, "rollout_id": f"{t}-{s}", "source_line": 10 * t + s}
        for t in range(6)
        for s in range(4)
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    _, found = page(path)
    assert "Score by training step" in found.headings
    assert "By training step" in found.headings


def test_the_same_page_twice(page, tmp_path):
    path = small(tmp_path / "run")
    assert page(path)[0] == page(path)[0]


def test_real_files(page, real_rollouts):
    for folder in ("nemo_gym", "verifiers"):
        for path in sorted((real_rollouts / folder).glob("*.jsonl")):
            if path.stat().st_size >= 1000:
                _, found = page(path)
                assert "Score" in found.headings
