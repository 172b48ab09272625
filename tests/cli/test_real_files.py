"""Every real rollout file, through both commands: read whole, or refused in one line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import REAL

FOLDERS = ("verifiers", "nemo_gym")
FILES = [
    p.relative_to(REAL).as_posix() for f in FOLDERS for p in sorted((REAL / f).glob("*.jsonl"))
]

# Rollouts, valid ones, groups; counted from the files by hand-written one-liners.
KNOWN = {
    "verifiers/gsm8k_all_fail.jsonl": (150, 150, 50),
    "verifiers/math_python_g3.jsonl": (15, 15, 5),
    "verifiers/wordle_g3_nonbinary.jsonl": (15, 15, 5),
    "verifiers/prml_g3_wide_rewards.jsonl": (15, 15, 5),
    "verifiers/wiki_search_g1_100.jsonl": (100, 100, 100),
}


@pytest.fixture(params=FILES or ["absent"])
def real_file(request, real_rollouts):
    return real_rollouts / request.param


def test_score_and_inspect(cli, real_file):
    scored = cli("score", real_file, "-e", "leave_one_out", "--json")
    seen = cli("inspect", real_file, "--json")
    assert scored.code == seen.code
    if scored.code:
        assert scored.code == 2
        assert len(scored.err.splitlines()) == len(seen.err.splitlines()) == 1
        assert real_file.name in scored.err
        return
    one, other = json.loads(scored.out), json.loads(seen.out)
    assert one["coverage"] == other["coverage"]
    cover = one["coverage"]
    assert cover["rollouts"] == cover["valid"] + sum(cover["invalid"].values())
    assert one["advantages"]["count"] == cover["valid"]
    [file] = other["files"]
    assert file["rows"] == cover["rollouts"]
    assert file["records"] == file["rows"] + sum(file["reported"].values())
    with real_file.open("rb") as lines:
        assert file["lines"] == sum(1 for _ in lines)
    sizes = one["groups"]["sizes"]
    assert sum(sizes.values()) == one["groups"]["count"]
    assert sum(int(size) * n for size, n in sizes.items()) == cover["rollouts"]
    known = KNOWN.get(f"{real_file.parent.name}/{real_file.name}")
    if known:
        assert (cover["rollouts"], cover["valid"], one["groups"]["count"]) == known


def test_both_are_printed_for_people_too(cli, real_file):
    for words in (["score", real_file, "-e", "grpo"], ["inspect", real_file]):
        assert cli(*words).code in (0, 2)


def test_calibrate(cli, real_file, tmp_path):
    report = tmp_path / "report.html"
    words = ("--batch", 4, "--resamples", 50, "--html", report, "--json")
    ended = cli("calibrate", real_file, *words)
    assert ended.code in (0, 2)
    assert report.exists() == (ended.code == 0)
    if ended.code == 0:
        seen = json.loads(ended.out)["tasks"]
        several = seen["with_two_or_more"] + seen["with_one"] + seen["with_none"]
        assert several == seen["count"] > 0


def test_four_models_on_the_same_prompts(cli, real_rollouts):
    """Together a table of 100 x 4, and the files that should not be mixed unseen are named."""
    files = sorted((real_rollouts / "verifiers").glob("wiki_search*.jsonl"))
    ended = cli("score", *files, "-e", "leave_one_out", "--json")
    found = json.loads(ended.out)
    assert found["groups"]["sizes"] == {"4": 100}
    assert "--group-by group,source_file" in ended.err
    apart = cli("score", *files, "-e", "leave_one_out", "--group-by", "group,source_file", "--json")
    assert json.loads(apart.out)["groups"]["sizes"] == {"1": 400}
    assert "--fallback batch_leave_one_out" in apart.err


def test_every_reward_equal_is_said(cli, real_rollouts):
    ended = cli("score", real_rollouts / "verifiers/gsm8k_all_fail.jsonl", "-e", "grpo", "--json")
    assert "every usable reward is 0: there is no signal" in ended.err
    assert json.loads(ended.out)["groups"]["constant"] == 50
