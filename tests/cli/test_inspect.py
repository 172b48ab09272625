from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pytest

SAMPLES = Path(str(resources.files("advlib.samples")))


@pytest.fixture
def found(cli):
    ended = cli("inspect", SAMPLES, "--json")
    assert ended.code == 0
    return json.loads(ended.out)


def test_the_account_of_the_samples_closes(found):
    for file in found["files"]:
        assert file["records"] == file["rows"] + sum(file["reported"].values())
    assert sum(file["rows"] for file in found["files"]) == found["coverage"]["rollouts"] == 38
    reported = {Path(f["path"]).name: f["reported"] for f in found["files"] if f["reported"]}
    assert reported == {
        "code_repair_annotations.jsonl": {"annotation_joined": 12},
        "code_repair_traces.jsonl": {"grade_trace": 1},
        "orchard_rollouts_failures.jsonl": {"superseded_attempt": 1},
    }


def test_each_format_is_named_with_the_fields_that_gave_it_away(found):
    told = {Path(f["path"]).name: (f["format"], f["recognised_by"]) for f in found["files"]}
    assert told["arithmetic_results.jsonl"][0] == "verifiers"
    assert "example_id" in told["arithmetic_results.jsonl"][1]
    assert told["code_repair_traces.jsonl"] == ("prime_rl", ["traces"])
    assert told["code_repair_annotations.jsonl"] == ("prime_rl", ["trace_id"])
    assert told["orchard_rollouts.jsonl"][0] == "nemo_gym"
    assert "_ng_task_index" in told["orchard_rollouts.jsonl"][1]


def test_raw_fields_are_counted(found):
    [file] = [f for f in found["files"] if f["path"].endswith("orchard_rollouts.jsonl")]
    assert file["raw_fields"]["reward"] == 7  # of 8 lines: one has none
    assert file["raw_fields"]["_ng_task_index"] == 8


def test_columns_with_their_nulls(found):
    nulls = {column["name"]: column["nulls"] for column in found["columns"]}
    assert nulls["rollout_id"] == 0
    assert nulls["tier"] == 38 - 9  # nine traces were ranked
    assert nulls["reward"] == 3  # one missing, one that never ran, one episode without a trace
    assert nulls["advantage"] == 38
    assert found["reward_components"] == ["correct", "shown_work", "tests_pass"]


def test_coverage(found):
    assert found["coverage"]["invalid"] == {"masked": 3, "failed": 2, "missing_reward": 1}
    assert found["environments"] == {"arithmetic": 13, "code-repair": 15, "orchard_agent": 10}
    assert found["groups"]["count"] == 9
    assert found["groups"]["constant"] == 2
    assert found["groups"]["singletons"] == 1


def test_what_is_printed(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli("inspect", SAMPLES)
    assert ended.code == 0
    assert "52 records = 38 rows + 14 reported" in ended.out
    assert "prime_rl, by trace_id, traces" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_our_own_parquet(cli, tmp_path):
    out = tmp_path / "out.parquet"
    assert cli("score", SAMPLES, "-e", "grpo", "-o", out).code == 0
    ended = cli("inspect", out, "--json")
    assert ended.code == 0
    [file] = json.loads(ended.out)["files"]
    assert file["format"] == "advlib"
    assert "rollout_id" in file["recognised_by"]
    assert file["rows"] == 38


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_compressed_file_told_by_its_content(cli, tmp_path, codec):
    path = tmp_path / "x.jsonl"
    text = (SAMPLES / "arithmetic_results.jsonl").read_bytes()
    with pa.CompressedOutputStream(str(path), codec) as stream:
        stream.write(text)
    ended = cli("inspect", path, "--json")
    assert ended.code == 0
    [file] = json.loads(ended.out)["files"]
    assert file["rows"] == file["raw_fields"]["example_id"] == 13


def test_a_damaged_line_does_not_stop_it(cli, tmp_path):
    path = tmp_path / "x.jsonl"
    good = (SAMPLES / "arithmetic_results.jsonl").read_text()
    path.write_text(good + '{"example_id": 9, "re\n' + '{"example_id": 0, "reward": NaN}\n')
    ended = cli("inspect", path, "--json")
    assert ended.code == 0
    [file] = json.loads(ended.out)["files"]
    assert file["records"] == 15
    assert file["rows"] == 14
    assert json.loads(ended.out)["coverage"]["invalid"] == {"failed": 1, "nan_reward": 1}
