from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from advlib import adapters
from advlib.cli import _output, _read
from advlib.cli._estimators import ESTIMATORS

SAMPLES = Path(str(resources.files("advlib.samples")))
ORCHARD = SAMPLES / "orchard_rollouts.jsonl"
REPAIR = (SAMPLES / "code_repair_traces.jsonl", SAMPLES / "code_repair_annotations.jsonl")


def rows_file(path: Path, rewards: dict[int, list], **fields) -> Path:
    """A verifiers file: the rewards of each example."""
    lines = [
        json.dumps({"example_id": k, "prompt": f"q{k}", "completion": "", "reward": r} | fields)
        for k, values in rewards.items()
        for r in values
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def results(tmp_path) -> Path:
    return rows_file(tmp_path / "results.jsonl", {0: [1, 0, 0, 0], 1: [1, 0.5]})


class TestOutput:
    @pytest.mark.parametrize("suffix", _output.SUFFIXES)
    def test_every_row_with_its_identity(self, cli, results, tmp_path, suffix):
        out = tmp_path / f"out{suffix}"
        assert cli("score", results, "-e", "group_mean", "-o", out).code == 0
        table = adapters.read(out)
        assert table["advantage"].to_pylist() == [0.75, -0.25, -0.25, -0.25, 0.25, -0.25]
        assert table["baseline"].to_pylist() == [0.25] * 4 + [0.75] * 2
        assert table["source_line"].to_pylist() == [1, 2, 3, 4, 5, 6]
        assert set(table["source_file"].to_pylist()) == {str(results)}
        assert table["rollout_id"].to_pylist() == [f"{results}:{line}" for line in range(1, 7)]

    def test_the_columns_come_in_a_fixed_order(self, cli, results, tmp_path):
        out = tmp_path / "out.parquet"
        cli("score", results, "-e", "group_mean", "-o", out)
        names = pq.read_schema(out).names
        assert tuple(names[: len(_output.FIRST)]) == _output.FIRST
        assert "prompt" not in names

    def test_rows_that_do_not_count_are_kept_with_zero_and_a_reason(self, cli, tmp_path):
        out = tmp_path / "out.jsonl"
        assert cli("score", ORCHARD, "-e", "leave_one_out", "-o", out).code == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        told = [(r["advantage"], r["baseline"], r["reason"]) for r in rows if not r["valid"]]
        assert told == [
            (0.0, None, "masked"),
            (0.0, None, "missing_reward"),
            (0.0, None, "masked"),
            (0.0, None, "masked"),
        ]
        assert [r["reward"] for r in rows if r["reason"] == "missing_reward"] == [None]

    def test_settings_are_in_the_metadata(self, cli, results, tmp_path):
        out = tmp_path / "out.parquet"
        cli(
            "score",
            results,
            "-e",
            "grpo",
            "--ddof",
            0,
            "--group-by",
            "group,source_file",
            "-o",
            out,
        )
        kept = json.loads(pq.read_schema(out).metadata[_output.METADATA])
        assert kept["estimator"] == "grpo"
        assert kept["options"] == {"ddof": 0}
        assert kept["group_by"] == ["group", "source_file"]

    def test_a_scored_file_can_be_scored_again(self, cli, tmp_path):
        first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
        assert cli("score", *REPAIR, "-e", "group_mean", "-o", first).code == 0
        assert cli("score", first, "-e", "gar", "-o", second).code == 0
        direct = tmp_path / "c.parquet"
        assert cli("score", *REPAIR, "-e", "gar", "-o", direct).code == 0
        again, once = pq.read_table(second), pq.read_table(direct)
        assert again["advantage"].to_pylist() == once["advantage"].to_pylist()
        assert again["reason"].to_pylist() == once["reason"].to_pylist()

    def test_an_older_output_is_replaced(self, cli, results, tmp_path):
        out = tmp_path / "out.parquet"
        out.write_text("older")
        assert cli("score", results, "-e", "grpo", "-o", out).code == 0
        assert len(pq.read_table(out)) == 6

    def test_ctrl_c_while_writing_leaves_the_older_file(self, cli, results, tmp_path, monkeypatch):
        def interrupted(table, file):
            file.write(b"half")
            raise KeyboardInterrupt

        out = tmp_path / "out.parquet"
        out.write_text("older")
        monkeypatch.setattr(pq, "write_table", interrupted)
        ended = cli("score", results, "-e", "grpo", "-o", out)
        assert ended.code == 130
        assert ended.err == "advlib: interrupted; no unfinished file is left behind\n"
        assert out.read_text() == "older"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["out.parquet", "results.jsonl"]


class TestRefusals:
    """Each ends with code 2 and one line that says what to do, before anything is written."""

    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            (["-e", "grop"], "'grop' is not known. Did you mean grpo?"),
            (["-e", "RLOO"], "Known: group_mean, grpo, leave_one_out"),
            (["-e", "grpo", "--format", "nemo-gym"], "Did you mean nemo_gym?"),
            (["-e", "grpo", "--format", "nemo_gym"], "results.jsonl:1"),
            (["-e", "grpo", "--fallback", "batch"], "Did you mean batch_mean?"),
            (["-e", "batch_mean", "--fallback", "batch_mean"], "Known: zero, raw"),
            (["-e", "max_rl", "--f-min", "0.2"], "--f-min is an option of gar; max_rl does not"),
            (["-e", "group_mean", "--eps", "0"], "--eps is an option of grpo, leave_one_out"),
            (["-e", "leave_one_out", "--eps", "0"], "add --normalize"),
            (["-e", "grpo", "--ddof", "2"], "ddof"),
            (["-e", "grpo", "--ddof", "one"], "--ddof"),
            (["-e", "grpo", "--eps", "-1"], "eps"),
            (["-e", "grpo", "--scale", "all"], "scale"),
            (["-e", "grpo", "--group-size", "0"], "--group-size"),
            (["-e", "grpo", "--group-by", "stp"], "Did you mean step?"),
            (["-e", "grpo", "--group-by", "step"], "step: null in 6 rows of 6"),
            (["-e", "grpo", "--reward", "nothing"], "the reward 'nothing' is not known"),
            (["-e", "grpo", "--count-as-zero", "not_trainable"], "not_trainable"),
            (["-e", "gar"], "gar needs a grader's tiers"),
            ([], "--estimator"),
        ],
    )
    def test_options(self, cli, results, words, wanted):
        ended = cli("score", results, *words)
        assert ended.code == 2
        assert ended.out == ""
        assert len(ended.err.splitlines()) == 1
        assert wanted in ended.err

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("out.csv", "must end in .parquet, .jsonl"),
            ("absent/out.parquet", "absent is not there"),
            ("results.jsonl", "that file is an input"),
            ("link.jsonl", "that file is an input"),
            ("folder.jsonl", "that is a folder"),
        ],
    )
    def test_outputs(self, cli, results, tmp_path, name, wanted):
        (tmp_path / "link.jsonl").symlink_to(results)
        (tmp_path / "folder.jsonl").mkdir()
        before = results.read_bytes()
        ended = cli("score", results, "-e", "grpo", "-o", tmp_path / name)
        assert ended.code == 2
        assert len(ended.err.splitlines()) == 1
        assert wanted in ended.err
        assert results.read_bytes() == before

    def test_an_output_that_is_read_as_part_of_a_folder(self, cli, results, tmp_path):
        (tmp_path / "out.jsonl").write_bytes(results.read_bytes())
        ended = cli("score", tmp_path, "-e", "grpo", "-o", tmp_path / "out.jsonl")
        assert ended.code == 2
        assert "that file is an input" in ended.err

    @pytest.mark.parametrize("text", ["", "\n\n", "no json\n", "[1]\n", '{"a": 1}\n'])
    def test_files_without_rollouts(self, cli, tmp_path, text):
        path = tmp_path / "x.jsonl"
        path.write_text(text)
        for words in (["score", path, "-e", "grpo"], ["inspect", path]):
            ended = cli(*words)
            assert ended.code == 2
            assert len(ended.err.splitlines()) == 1
            assert "x.jsonl" in ended.err

    def test_a_folder_without_files(self, cli, tmp_path):
        ended = cli("score", tmp_path, "-e", "grpo")
        assert ended.code == 2
        assert str(tmp_path) in ended.err

    def test_a_file_that_may_not_be_read(self, cli, results, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied", str(results))

        monkeypatch.setattr(adapters, "read", refuse)
        ended = cli("score", results, "-e", "grpo")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == f"advlib: {results}: Permission denied\n"

    def test_a_read_that_fails_half_way(self, cli, results, monkeypatch):
        def fail(*_, **__):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(adapters, "read", fail)
        ended = cli("inspect", results)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == f"advlib: {results}: Input/output error\n"

    def test_a_name_that_is_not_utf_8(self, cli, results):
        odd = results.with_name("odd\udcff.jsonl")
        results.rename(odd)
        ended = cli("score", odd, "-e", "grpo")
        assert (ended.code, ended.out) == (2, "")
        assert r"odd\udcff.jsonl: a file's name is not UTF-8" in ended.err

    def test_no_path(self, cli):
        ended = cli("score", "-e", "grpo")
        assert ended.code == 2
        assert "paths" in ended.err.lower()


class TestSummary:
    def test_json_is_all_of_stdout(self, cli):
        ended = cli("score", ORCHARD, "-e", "leave_one_out", "--json")
        assert ended.code == 0
        found = json.loads(ended.out)
        assert found["coverage"] == {
            "rollouts": 10,
            "valid": 6,
            "invalid": {"masked": 3, "missing_reward": 1},
            "invalid_by_failure_kind": {"judge_failed": 1, "agent_request_failed": 1},
            "counted_as_zero": {},
            "rows_by_policy": {},
        }
        assert found["groups"] == {
            "count": 2,
            "sizes": {"5": 2},
            "valid_sizes": {"3": 2},
            "constant": 0,
            "singletons": 0,
            "empty": 0,
        }
        assert found["rewards"]["mean"] == 0.75
        assert found["advantages"]["exact_zero_share"] == pytest.approx(1 / 3)
        assert found["read"] == {
            "records": 11,
            "rows": 10,
            "reported": {"superseded_attempt": 1},
            "notes": {},
        }
        assert found["output"] is None

    def test_without_output_the_rows_are_shown_and_nothing_is_written(self, cli, results, tmp_path):
        ended = cli("score", results, "-e", "group_mean")
        assert "results.jsonl:1" in ended.out
        assert "+0.75" in ended.out
        assert "nothing was written" in ended.out
        assert [p.name for p in tmp_path.iterdir()] == ["results.jsonl"]

    def test_many_rows_are_counted_not_printed(self, cli, tmp_path):
        source = rows_file(tmp_path / "many.jsonl", {k: [1, 0] for k in range(50)})
        ended = cli("score", source, "-e", "group_mean")
        assert "and 80 more" in ended.out
        assert len(ended.out.splitlines()) < 50

    def test_quiet(self, cli, results):
        ended = cli("score", results, "-e", "group_mean", "--quiet")
        assert (ended.code, ended.out, ended.err) == (0, "", "")

    @pytest.mark.parametrize("columns", ["40", "80", "200"])
    def test_it_fits_the_terminal(self, cli, results, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", columns)
        ended = cli("score", results, "-e", "group_mean")
        assert max(map(len, ended.out.splitlines())) <= int(columns)

    def test_text_of_files_is_not_markup(self, cli, tmp_path):
        source = rows_file(tmp_path / "r.jsonl", {0: [1, 0]}, task="[red]\x1b[31m[/]")
        ended = cli("inspect", source)
        assert ended.code == 0
        assert r"[red]\x1b[31m[/]" in ended.out
        assert "\x1b" not in ended.out


class TestWarnings:
    def test_all_singletons_and_the_way_out(self, cli, tmp_path):
        source = rows_file(tmp_path / "r.jsonl", {k: [k % 2] for k in range(6)})
        ended = cli("score", source, "-e", "leave_one_out", "--json")
        assert "--fallback batch_leave_one_out" in ended.err
        assert json.loads(ended.out)["groups"]["singletons"] == 6
        assert json.loads(ended.out)["advantages"]["exact_zero_share"] == 1
        ended = cli(
            "score", source, "-e", "leave_one_out", "--fallback", "batch_leave_one_out", "--json"
        )
        assert ended.err == ""
        assert json.loads(ended.out)["advantages"]["exact_zero_share"] == 0

    def test_lines_that_the_reader_could_not_use(self, cli, results):
        with results.open("a") as file:
            file.write("{broken\n")
        ended = cli("score", results, "-e", "group_mean")
        assert ended.code == 0
        assert len(ended.err.splitlines()) == 1
        assert "results.jsonl" in ended.err
        assert "7" in ended.err

    def test_a_declared_size(self, cli, results):
        ended = cli("score", results, "-e", "group_mean", "--group-size", 4)
        assert "1 group of 2 has not the declared 4 rollouts" in ended.err

    def test_a_size_declared_beside_the_file(self, cli, results):
        (results.parent / "metadata.json").write_text('{"env_id": "e", "rollouts_per_example": 4}')
        ended = cli("score", results, "-e", "group_mean")
        assert "declares 4 rollouts a task, and 1 group of 2 in it has another number" in ended.err


class TestRewards:
    def test_a_component(self, cli, tmp_path):
        source = rows_file(tmp_path / "r.jsonl", {0: [0, 0]}, metrics={"style": 0.5})
        found = json.loads(
            cli("score", source, "-e", "group_mean", "--reward", "style", "--json").out
        )
        assert found["rewards"]["mean"] == 0.5

    def test_br_110_a_reward_that_is_an_object(self, cli, tmp_path):
        source = rows_file(
            tmp_path / "r.jsonl", {0: [{"score": 1, "acc": True}, {"score": 0, "acc": True}]}
        )
        ended = cli("score", source, "-e", "group_mean")
        assert ended.code == 2
        assert "'score', 'acc'" in ended.err
        assert "--reward NAME" in ended.err
        found = json.loads(
            cli("score", source, "-e", "group_mean", "--reward", "score", "--json").out
        )
        assert found["rewards"] == {
            "count": 2,
            "mean": 0.5,
            "std": pytest.approx(0.5**0.5),
            "min": 0,
            "max": 1,
        }
        assert cli("inspect", source, "--reward", "score").code == 0

    def test_counting_a_failure_as_zero_is_asked_for_and_recorded(self, cli, tmp_path):
        out = tmp_path / "out.parquet"
        words = ("score", ORCHARD, "-e", "group_mean", "-o", out)
        ended = cli(*words, "--count-as-zero", "judge_failed", "--json")
        assert json.loads(ended.out)["coverage"]["counted_as_zero"] == {"judge_failed": 1}
        table = pq.read_table(out)
        row = table["reason"].to_pylist().index("counted as zero: judge_failed")
        # a, b and d of the group are 2, 0 and 1: with another 0 the mean is 3/4
        assert table["advantage"][row].as_py() == -0.75
        assert table["valid"][row].as_py()
        assert table["invalid_reason"][row].as_py() is None
        kept = json.loads(table.schema.metadata[_output.METADATA])
        assert kept["on_failure"] == {"judge_failed": "zero", "*": "mask"}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_runs_from_the_command_line(cli, name):
    ended = cli("score", *REPAIR, "-e", name, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["advantages"]["count"] == 14


def test_float64_loses_nothing(cli, tmp_path):
    out = tmp_path / "out.parquet"
    source = rows_file(tmp_path / "r.jsonl", {0: [1e8, 1e8 + 1]})
    assert cli("score", source, "-e", "group_mean", "-o", out).code == 0
    assert pq.read_table(out)["advantage"].to_pylist() == [-0.5, 0.5]


def test_the_formats_are_those_of_the_readers():
    known = {getattr(each, "name", each) for each in adapters.FORMATS}
    assert set(_read.FORMATS) == {"auto", *known}


def test_a_closer_look_at_masks_changes_no_sibling(cli, tmp_path):
    """Deleting the rows that do not count gives the others the same advantages."""
    out, again = tmp_path / "out.parquet", tmp_path / "again.parquet"
    cli("score", ORCHARD, "-e", "grpo", "-o", out)
    kept = pq.read_table(out)
    kept = kept.filter(kept["valid"])
    adapters.write(kept, tmp_path / "kept.parquet")
    cli("score", tmp_path / "kept.parquet", "-e", "grpo", "-o", again)
    np.testing.assert_array_equal(
        pq.read_table(again)["advantage"].to_numpy(), kept["advantage"].to_numpy()
    )


def test_help_names_what_there_is(cli, monkeypatch):
    from advlib.cli.score import NAMES

    monkeypatch.setenv("COLUMNS", "80")
    assert tuple(ESTIMATORS) == NAMES
    ended = cli("score", "--help")
    assert ended.code == 0
    assert all(name in ended.out for name in NAMES)
    assert max(map(len, ended.out.splitlines())) <= 80
