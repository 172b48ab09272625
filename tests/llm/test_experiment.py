"""An experiment on a published model: the folder is named in the spec, and known by its files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from advlib.cli import main
from advlib.experiments import SpecError, run_experiment
from advlib.experiments.spec import Compute
from tests.experiments import made
from tests.llm import skip_without_extra

skip_without_extra()

ROOT = Path(__file__).parents[2]
POLICY = {"kind": "folder", "path": "models/tiny", "lora_rank": 2, "dtype": "float32"}
SMALL = {
    "policy": POLICY,
    "sampling": {"max_prompt": 56, "max_new": 3},
    "steps": 2,
    "seeds": [0],
    "optimizer__lr": 0.01,
}


@pytest.fixture
def place(folders, tmp_path: Path) -> Path:
    shutil.copytree(folders("qwen3"), tmp_path / "models/tiny")
    return tmp_path


def run(place: Path, name: str = "run", *, resume: bool = False, **changes):
    spec = made.spec(**{**SMALL, **changes})
    return run_experiment(spec, place / name, folder=place, given=made.tasks(), resume=resume)


def test_to_the_verdict_on_any_devices_and_never_with_another_model(place):
    record = run(place)
    assert record["stopped_at"] is None
    assert record["preflight"]["passed"]
    assert record["pilot"]["restored"]
    start = record["start"]
    assert start["parameters"] < 5000  # LoRA's alone
    model = start["revisions"]["model"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(model)
    assert "google-tunix" in start["revisions"]["packages"]
    for arm in record["arms"]:
        done = arm["runs"][0]
        assert done["finished"]
        assert done["params_sha256"] != start["params_sha256"]
        assert done["disagreement_max"] < 1e-4
        with np.load(place / "run/arms" / arm["name"] / "seed-0/final.npz") as final:
            assert all("_lora_" in name for name in final.files)
            assert max(np.abs(final[name]).max() for name in final.files if "_lora_b" in name) > 0

    # A row on each of 8 devices, each weight over 4 of them: the same numbers.
    split = run(place, "split", compute={"shard": 4})
    assert split["stopped_at"] is None
    for arm in record["arms"]:
        metrics = Path("arms", arm["name"], "seed-0/metrics.jsonl")
        one, other = ((place / name / metrics).read_text() for name in ("run", "split"))
        for line, again in zip(one.splitlines(), other.splitlines(), strict=True):
            first, second = json.loads(line), json.loads(again)
            assert second["reward"] == first["reward"]
            assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-4)
            assert second["disagreement"] < 1e-4

    # The same again finds all of it done; a weight that moved is another model.
    assert run(place, resume=True) == record
    weights = place / "models/tiny/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(SpecError, match=r"model\.model\.safetensors was"):
        run(place, resume=True)


def test_all_weights_in_micro_batches(place):
    policy = {**POLICY, "lora_rank": None}
    record = run(place, policy=policy, compute={"micro_batches": 2, "dtype": "bfloat16"})
    assert record["stopped_at"] is None
    with np.load(place / "run/start/params.npz") as start:
        assert not any("_lora_" in name for name in start.files)
        assert {start[name].dtype for name in start.files} == {np.dtype(np.float32)}


def test_the_spec_of_the_page_runs_from_the_command_line(place, monkeypatch):
    """As it stands, but for what makes it long."""
    page = (ROOT / "docs/experiment/published.md").read_text(encoding="utf-8")
    document, devices = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    assert msgspec.convert(devices["compute"], Compute).shard == 4
    assert document["environment"]["wording"].endswith("\\boxed{} format.")
    (place / "models/tiny").rename(place / document["policy"]["path"])
    (place / "gsm8k").mkdir()
    for name, numbers in (("train", range(160)), ("test", range(900, 920))):
        rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in numbers]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "gsm8k" / f"{name}.jsonl").write_text(text)
    document["policy"] |= {"lora_rank": 2, "template_options": {"quiet": True}}
    document |= {"sampling": {"max_prompt": 100, "max_new": 4}, "steps": 2}
    document["pilot"] = {"steps": 2, "eval_items": 20}
    document["calibration"]["rollouts"] = 2
    document["eval"] = {"n_examples": 20, "batch_size": 20}
    (place / "word-problems.json").write_text(json.dumps(document))
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # paths start from the spec, not from here
    code = main(["experiment", "../word-problems.json", "--output", "run"])
    # Random weights hardly guess a number: no reward tells questions apart, and the gate stops.
    assert code == 3
    record = json.loads(Path("run/record.json").read_text())
    assert record["stopped_at"] == "calibration"
    assert record["calibration"]["measured"] == 256
    assert record["calibration"]["mean_reward"] < 0.1
    line = Path("run/calibration/rollouts.jsonl").read_text().splitlines()[0]
    assert "+ 1? Write your answer in \\boxed{} format." in json.loads(line)["prompt"]
    assert "model.safetensors" in Path("run/report.html").read_text()


def test_a_chat_template_that_fails_is_told_with_the_question(place):
    (place / "models/tiny/chat_template.jinja").write_text("{{ raise_exception('no system') }}")
    with pytest.raises(SpecError, match=r"cannot encode question 'q\d+': TemplateError: no system"):
        run(place)
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy": {**POLICY, "path": "models/other"}}, "policy: load_llm reads a local folder"),
        ({"policy": {**POLICY, "lora_rank": None, "lora_alpha": 2.0}}, "policy: lora_alpha needs"),
        ({"policy": {**POLICY, "template_options": {"quiet": True}, "chat": False}}, "policy: "),
        ({"sampling": {"max_prompt": 8, "max_new": 3}}, "sampling.max_prompt is 8"),
        ({"sampling": {"max_prompt": 500, "max_new": 3}}, "takes 128 columns at most"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_written(place, changes, told):
    with pytest.raises(SpecError, match=told):
        run(place, **changes)
    assert not (place / "run").exists()
