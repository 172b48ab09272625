"""The report of ``advlib calibrate``: one well-formed page that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse

from advlib.cli import _pairs, _svg
from tests.cli.calibrated import lines, write

FAST = ("--resamples", 200)
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Checks that tags close, and collects headings, text and pictures."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []
        self.pictures = [
            ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", source, re.S)
        ]
        self.headings = re.findall(r"<h2>(.*?)</h2>", source)

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def reported(cli, tmp_path):
    """The source of a report."""

    def run(rows: list[dict], *words: object) -> str:
        path = write(tmp_path / "rollouts.jsonl", rows)
        report = tmp_path / "report.html"
        ended = cli("calibrate", path, "--html", report, *FAST, *words)
        assert ended.code in (0, 3), ended.err
        return report.read_text(encoding="utf-8")

    return run


def test_it_loads_nothing(reported):
    source = reported(lines(64))
    page = Page(source)
    assert "<script" not in source
    assert not [value for _, name, value in page.attributes if name in ("src", "href")]
    assert not re.search(r"url\(|@import|https?:", source)
    assert "default-src 'none'" in source


def test_sixty_four_tasks(reported):
    page = Page(reported(lines(64)))
    assert page.headings == [
        "Ratios",
        "Effective batch by temperature",
        "Effective number of neighbours",
        "Alike prompts, alike rewards? TF-IDF",
        "Alike prompts, alike rewards? TF-IDF, words only",
        "Alike prompts, alike rewards? prompt length",
        "Rewards by task",
        "What was looked at",
    ]
    assert len(page.pictures) == 6
    rewards = page.pictures[-1]
    assert len(rewards.findall("circle")) == 64


def test_one_task(reported):
    page = Page(reported(lines(1)))
    assert len(page.pictures) == 1
    assert "Nothing can be estimated" in "".join(page.text)
    assert "Not drawn" in page.headings
    assert "nan" not in "".join(page.text).lower().split()


def test_no_reward_at_all(reported):
    page = Page(reported([{**row, "error": "broke"} for row in lines(2)]))
    assert page.pictures == []
    assert "no task has a measured reward" in "".join(page.text)


def test_ten_thousand_tasks(reported):
    source = reported(lines(10_000, 2), "--kernel", "words,length")
    assert len(source.encode()) < 2_000_000
    page = Page(source)
    assert all(len(picture.findall("circle")) <= 400 for picture in page.pictures)
    assert "A dot for 100 tasks in a row" in "".join(page.text)
    assert "20,000 pairs of tasks" in "".join(page.text)


def test_marks_stay_inside(reported):
    page = Page(reported(lines(64), "--temperature", "inf,0.1,0.0001"))
    assert "∞" in "".join(page.text)
    for picture in page.pictures:
        for dot in picture.findall("circle"):
            assert _svg.LEFT <= float(dot.get("cx")) <= _svg.WIDTH - _svg.RIGHT + 0.1
            assert 0 <= float(dot.get("cy")) <= _svg.HEIGHT - _svg.BOTTOM + 0.1
        for path in picture.findall("path"):
            assert "nan" not in path.get("d")


def test_text_of_files_is_escaped(cli, tmp_path):
    folder = tmp_path / "<b>&amp;"
    folder.mkdir()
    path = write(folder / "r.jsonl", lines(33))
    np.save(tmp_path / "<i>.npy", np.eye(33))
    report = tmp_path / "report.html"
    words = ("--kernel", "words", "--kernel", tmp_path / "<i>.npy")
    assert cli("calibrate", path, "--html", report, *FAST, *words).code == 0
    source = report.read_text(encoding="utf-8")
    Page(source)
    assert "<b>" not in source
    assert "<i>.npy" not in source
    assert "&lt;b&gt;&amp;amp;" in source


def test_the_gate_is_shown(reported, tmp_path):
    gate = tmp_path / "gate.json"
    gate.write_text('[{"metric": "ratio_words", "min": 9}, {"metric": "tasks", "min": 64}]')
    page = Page(reported(lines(64), "--gate", gate, "--gate-on", "lower"))
    told = "".join(page.text)
    assert "The gate FAILED, judged by the lower bounds of the ratios." in told
    assert f"Gate of {gate}" in page.headings
    assert told.count("FAILED") == 2


def test_equal_runs_give_equal_pages(reported):
    assert reported(lines(40)) == reported(lines(40))


class TestCharts:
    @pytest.mark.parametrize(
        ("low", "high", "right"),
        [
            (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
            (0.97, 1.02, [0.97, 0.98, 0.99, 1, 1.01, 1.02]),
            (-3, 40, [0, 10, 20, 30, 40]),
            (1, 10_000, [2000, 4000, 6000, 8000, 10_000]),
        ],
    )
    def test_ticks(self, low, high, right):
        assert _svg.ticks(low, high) == pytest.approx(right)

    def test_a_frame_maps_bounds_to_its_edges(self):
        frame = _svg.frame((0, 10), (-1, 1))
        assert frame.x(0) == _svg.LEFT
        assert frame.x(10) == _svg.WIDTH - _svg.RIGHT
        assert frame.y(-1) == _svg.HEIGHT - _svg.BOTTOM
        assert frame.y(1) == _svg.TOP

    @pytest.mark.parametrize("value", [0.0, 1.0, -5.0, 1e9])
    def test_equal_bounds_are_moved_apart(self, value):
        frame = _svg.frame((value, value), _svg.padded([value, float("nan")]))
        assert frame.x.low < value < frame.x.high
        assert frame.y.low < value < frame.y.high
        assert _svg.axes(frame, "x", "y").count("<text") > 2

    def test_a_line_is_broken_where_a_value_is_missing(self):
        frame = _svg.frame((0, 3), (0, 1))
        path = _svg.line(frame, [(0, 0), (1, 1), (2, float("nan")), (3, 0)], "s0")
        assert path.count("M") == 2
        assert path.count("L") == 1


class TestPairs:
    def test_by_hand(self):
        features = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
        means = np.array([1.0, 0.5, 0.0, 0.25])
        pairs = _pairs.compare(features, means, _pairs.draw(4, np.random.default_rng(0)))
        np.testing.assert_allclose(pairs.cosine, [1, 0, 0, 0, 0, 0])
        np.testing.assert_allclose(pairs.difference, [0.5, 1, 0.75, 0.5, 0.25, 0.25])
        assert [row[0] for row in pairs.bins] == [0, 1]
        assert pairs.bins[0][1] == pytest.approx(0.55)
        assert pairs.bins[0][3] == 5
        right = np.corrcoef(pairs.cosine, pairs.difference)[0, 1]
        assert pairs.correlation == pytest.approx(right)

    def test_sparse_and_dense_agree(self):
        rng = np.random.default_rng(1)
        dense = rng.random((30, 8)) * (rng.random((30, 8)) < 0.4)
        drawn = _pairs.draw(30, rng)
        means = rng.random(30)
        one = _pairs.compare(dense, means, drawn)
        two = _pairs.compare(sparse.csr_matrix(dense), means, drawn)
        np.testing.assert_allclose(one.cosine, two.cosine, atol=1e-12)

    def test_many_are_sampled_and_none_is_with_itself(self):
        first, second = _pairs.draw(1000, np.random.default_rng(0))
        assert len(first) == _pairs.PAIRS
        assert (first != second).all()

    def test_one_task_has_no_pair(self):
        drawn = _pairs.draw(1, np.random.default_rng(0))
        assert _pairs.compare(np.ones((1, 2)), np.ones(1), drawn) is None

    def test_bins_hold_every_pair_once(self):
        rng = np.random.default_rng(2)
        pairs = _pairs.compare(rng.normal(size=(50, 3)), rng.random(50), _pairs.draw(50, rng))
        assert sum(row[3] for row in pairs.bins) == 50 * 49 // 2
        assert len(pairs.bins) == _pairs.BINS
