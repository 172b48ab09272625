"""What is known of a run that has not ended, and what its page shows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from advlib.cli import _experiment_told
from advlib.cli._experiment_page import page
from advlib.cli._experiment_plots import differences, plots
from advlib.cli._experiment_times import HEADS, rows
from advlib.experiments import SpecError, read_record, run_experiment
from advlib.experiments import run as run_module
from tests.experiments import made
from tests.experiments.conftest import Run, run


@pytest.fixture
def under_way(finished: Run, tmp_path: Path) -> Path:
    """As if it had been killed in its third arm."""
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "record.json").unlink()
    for pattern in ("06-*-seed-1.json", "07-*", "08-*"):
        for path in (folder / "stages").glob(pattern):
            path.unlink()
    log = folder / "arms/grpo/seed-1/metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]) + '{"step": 2, "rew')
    shutil.rmtree(folder / "arms/gs1/seed-1")
    return folder


def test_a_run_under_way_has_a_record_so_far(finished: Run, under_way: Path):
    record = read_record(under_way)
    assert (record["verdict"], record["stopped_at"]) == ("inconclusive", "unfinished")
    assert [len(arm["runs"]) for arm in record["arms"]] == [1, 1]
    for part in ("spec", "start", "preflight", "forced", "calibration", "pilot", "gate", "power"):
        assert record[part] == finished.record[part]
    assert record["evaluation"] is record["decision"] is None


def test_its_page_draws_what_is_there(under_way: Path):
    told = page(read_record(under_way), under_way)
    assert "No verdict yet: the run has not ended." in told
    assert "Recorded so far: start, preflight, forced, calibration, pilot, 2 of 4 arms" in told
    assert "Verdict: inconclusive" not in told
    drawn = {plot.title: plot for plot in plots(read_record(under_way), under_way)}
    assert "over the seeds" in drawn["Mean reward of a step"].told  # grpo's second is half done


def test_one_that_has_only_begun(under_way: Path):
    shutil.rmtree(under_way / "stages")
    record = read_record(under_way)
    assert record["stopped_at"] == "unfinished"
    assert record["start"] is None
    assert "0 of 4 arms, 0 of 5 evaluations" in page(record, under_way)


def test_its_record_does_not_take_in_what_is_damaged(under_way: Path):
    (under_way / "stages/04-calibration.json").write_text("{}")
    with pytest.raises(SpecError, match=r"04-calibration.json is damaged"):
        read_record(under_way)


def test_a_score_that_the_decision_cannot_use_is_found_before_the_arms(tmp_path):
    whole = made.tasks().environment
    scorer = whole.train.scorer
    parts = [
        part.__class__(part.questions, lambda question, response: 2 * scorer(question, response))
        for part in whole
    ]
    given = made.tasks()._replace(environment=whole.__class__(*parts))
    told = r"criterion 'primary': bounds are 0 and 1, and a response to 'q\d+' is scored 2"
    with pytest.raises(SpecError, match=told):
        run_experiment(made.spec(), tmp_path / "run", given=given)
    assert not (tmp_path / "run" / "stages" / "04-calibration.json").exists()


def test_no_arm_is_trained_after_one_that_did_not_end(tmp_path, monkeypatch):
    right, asked = run_module.run_arm, []

    def run_arm(work, start, arm, seed, kernel):
        asked.append((arm.name, seed))
        found = right(work, start, arm, seed, kernel)
        return {**found, "finished": False, "reason": "step 1: NaN"} if len(asked) == 2 else found

    monkeypatch.setattr(run_module, "run_arm", run_arm)
    record = run(tmp_path / "run").record
    assert asked == [("grpo", 0), ("gs1", 0)]
    assert (record["stopped_at"], [len(arm["runs"]) for arm in record["arms"]]) == ("arms", [1, 1])


def test_the_budget_counts_the_pilot_itself(finished: Run):
    timing = json.loads((finished.folder / "timing.json").read_text())
    seconds = timing["seconds"]
    before = sum(seconds[name] for name in ("start", "preflight", "forced", "calibration"))
    assert timing["projection"]["spent before"] > before + 0.5 * seconds["pilot"]


class TestDivergence:
    def test_it_is_logged_and_grows_from_nothing(self, finished: Run):
        for arm in ("grpo", "gs1"):
            log = (finished.folder / f"arms/{arm}/seed-0/metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line)["reference_kl_k3"] for line in log]
            assert abs(steps[0]) < 1e-9
            assert steps[-1] > 1e-7

    def test_it_holds_the_policy_back(self, finished: Run, tmp_path):
        held = run(tmp_path / "run", seeds=[0], kl={"coef": 1e5})
        assert held.record["stopped_at"] is None
        ends = [
            json.loads((one / "arms/gs1/seed-0/metrics.jsonl").read_text().splitlines()[-1])
            for one in (held.folder, finished.folder)
        ]
        assert ends[0]["reference_kl_k3"] < 0.8 * ends[1]["reference_kl_k3"]

    def test_it_can_be_left_out(self, tmp_path):
        folder = run(tmp_path / "run", seeds=[0], kl={"measured": False}).folder
        text = (folder / "arms/gs1/seed-0/metrics.jsonl").read_text()
        assert "reference_kl" not in text
        told = page(read_record(folder), folder)
        assert "Divergence from the starting policy: no arm has logged it" in told


class TestManyArms:
    @pytest.fixture
    def many(self, finished: Run, tmp_path: Path) -> tuple[dict, Path]:
        """Fourteen arms, by name alone."""
        record = json.loads(json.dumps(finished.record))
        names = [f"arm{nth}" for nth in range(12)]
        for name in names:
            shutil.copytree(finished.folder / "arms/grpo", tmp_path / "arms" / name)
            record["arms"].append({**record["arms"][0], "name": name})
            record["decision"]["by_seed"][name] = record["decision"]["by_seed"]["grpo"]
        for name in ("grpo", "gs1"):
            shutil.copytree(finished.folder / "arms" / name, tmp_path / "arms" / name)
        one = record["decision"]["comparisons"][0]
        record["decision"]["comparisons"] += [
            {**one, "treatment": name, "baseline": other}
            for name in names
            for other in ("start", "gs1")
        ]
        return record, tmp_path

    def test_no_two_are_drawn_alike(self, many: tuple[dict, Path]):
        drawn = {plot.title: plot for plot in plots(*many)}["Mean reward of a step"]
        styles = [style for style, _ in drawn.legend]
        assert len(styles) == len(set(styles)) == 14
        assert re.findall(r'class="line (s\d(?: \w+)?)"', drawn.svg) == styles
        assert "band" not in drawn.svg

    def test_pairs_are_left_to_the_table_where_they_are_many(self, many: tuple[dict, Path]):
        told = differences(many[0]).told
        assert "gs1 - grpo" in told  # what is decided
        assert "arm3 - start" in told
        assert "arm3 - gs1" not in told
        assert "12 other pairs stand in the table." in told

    def test_the_terminal_says_how_many_it_leaves_out(self, many: tuple[dict, Path], capsys):
        _experiment_told.show(many[0], "run")
        told = capsys.readouterr().out
        assert "and 12 other pairs, in the report" in told
        assert "arm3 - start" in told
        assert "arm3 - gs1" not in told


def test_of_many_seeds_the_terminal_shows_the_ends(finished: Run, capsys):
    record = json.loads(json.dumps(finished.record))
    record["spec"]["seeds"] = [0, 1, 2, 3, 4]
    record["decision"]["by_seed"] = {
        "start": [0.5] * 5, "grpo": [0.25, 0.5, None, 0.125, 1.0], "gs1": [None] * 5
    }  # fmt: skip
    _experiment_told.show(record, "run")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[:5]]
    assert rows[0] == ["policy", "lowest", "highest", "mean", "sd", "minus", "start"]
    assert rows[2] == ["start", "0.5000", "0.5000", "0.5000"]
    assert rows[3][:4] == ["grpo", "0.1250", "1.0000", "0.4688"]
    assert rows[4][:4] == ["gs1", "-", "-", "-"]


def test_the_time_of_a_step_is_split_by_arm(finished: Run):
    by_arm = {
        row[0]: dict(zip(HEADS, row, strict=True)) for row in rows(finished.record, finished.folder)
    }
    assert list(by_arm) == ["grpo", "gs1"]
    times = [
        json.loads(line)
        for seed in (0, 1)
        for line in (finished.folder / f"arms/gs1/seed-{seed}/times.jsonl")
        .read_text()
        .splitlines()[1:]
    ]
    sampled = sorted(1000 * step["sample"] for step in times)
    middle = (sampled[len(sampled) // 2] + sampled[(len(sampled) - 1) // 2]) / 2
    assert by_arm["gs1"]["sample"] == f"{middle:.1f} ms"
    assert by_arm["gs1"]["of it, the estimator"].endswith("%")
