"""``advlib report``: the account closes, the score is of what was measured, causes have places."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from advlib.cli._causes import TEXTS
from tests.cli.reported import failed, masked, meant, row, run, small, write

SAMPLES = Path(str(resources.files("advlib.samples")))
STATES = ("measured", "masked", "failed", "omitted", "unknown")


@pytest.fixture
def told(cli):
    """The JSON document of a report."""

    def report(*words: object) -> dict:
        ended = cli("report", *words, "--json")
        assert ended.code == 0, ended.err
        document = json.loads(ended.out)
        reconcile(document)
        return document

    return report


def reconcile(document: dict) -> None:
    """Every account closes, the parts add up, and what was not measured has a cause."""
    sections = [document["total"], *document["environments"].values()]
    for section in sections:
        account = section["account"]
        assert account["expected"] == sum(account[state] for state in STATES)
        lost = sum(cause["count"] for cause in section["not_measured"])
        assert lost == account["expected"] - account["measured"]
        assert section["score"]["rollouts"] == account["measured"]
    for state in ("expected", *STATES):
        parts = [section["account"][state] for section in document["environments"].values()]
        assert sum(parts) == document["total"]["account"][state]


def account(document: dict) -> tuple[int, ...]:
    return tuple(document["total"]["account"][state] for state in ("expected", *STATES))


class TestAccount:
    def test_of_a_run_that_ended(self, told, tmp_path):
        document = told(small(tmp_path))
        assert account(document) == (12, 7, 2, 1, 2, 0)
        assert document["total"]["account"]["expected_from"] == ["the run's inputs"]

    def test_of_one_that_may_be_going_on(self, told, tmp_path):
        assert account(told(small(tmp_path, ended=False))) == (12, 7, 2, 1, 0, 2)

    def test_without_inputs_the_rows_are_all_there_is(self, told, tmp_path):
        path = run(tmp_path, [row(0, 0, 1.0), masked(0, 1)], failures=[failed(0, 2)])
        document = told(path)
        assert account(document) == (3, 1, 1, 1, 0, 0)
        assert document["total"]["account"]["expected_from"] == ["the rows themselves"]

    def test_an_environment_without_any_row(self, told, tmp_path):
        inputs = [meant(0, 0), meant(1, 0, "gone")]
        document = told(run(tmp_path, [row(0, 0, 1.0)], inputs=inputs))
        gone = document["environments"]["gone"]
        assert gone["account"]["unknown"] == gone["account"]["expected"] == 1
        assert gone["score"]["mean"] is None

    def test_a_declared_group_size(self, told, tmp_path):
        rows = [
            {"example_id": k, "prompt": f"q{k}", "completion": "", "reward": 1.0}
            for k, many in ((0, 3), (1, 1), (2, 4))
            for _ in range(many)
        ]
        path = write(tmp_path / "results.jsonl", rows)
        (tmp_path / "metadata.json").write_text('{"env_id": "e", "rollouts_per_example": 3}')
        document = told(path)
        assert account(document) == (10, 8, 0, 0, 0, 2)
        assert document["total"]["account"]["expected_from"] == ["the declared group size"]

    def test_traces_of_frozen_agents_are_in_no_number(self, told, tmp_path):
        table = [
            {"valid": False, "invalid_reason": "not_trainable", "reward": 1.0},
            {"valid": True, "invalid_reason": None, "reward": 0.0},
        ]
        base = {"environment": "e", "task": "t", "group": "g", "format": "x", "source_file": "f"}
        rows = [{**base, **r, "rollout_id": str(n), "source_line": n} for n, r in enumerate(table)]
        document = told(write(tmp_path / "own.jsonl", rows))
        assert account(document) == (1, 1, 0, 0, 0, 0)
        assert any("frozen agents" in warning for warning in document["warnings"])

    def test_a_row_that_was_to_be_written_nowhere_is_omitted(self, told, tmp_path):
        path = run(tmp_path, [row(0, 0, 1.0), row(0, 1, 1.0, _ng_no_persist=True)])
        assert account(told(path)) == (2, 1, 0, 0, 1, 0)

    def test_masks_in_the_older_place_are_masks_and_are_told(self, told, tmp_path):
        legacy = row(0, 1, 1.0, instance_config={"mask_sample": True})
        document = told(run(tmp_path, [row(0, 0, 0.0), legacy]))
        assert account(document) == (2, 1, 1, 0, 0, 0)
        assert document["total"]["aggregate"]["metrics"]["coverage/masked_rollouts"] == 1
        [warning] = [w for w in document["warnings"] if "instance_config" in w]
        assert "1 row masked by instance_config.mask_sample alone" in warning

    def test_rows_that_nobody_asked_for_are_expected_too(self, told, tmp_path):
        document = told(run(tmp_path, [row(0, 0, 1.0), row(5, 0, 1.0)], inputs=[meant(0, 0)]))
        assert account(document)[0] == 2
        assert any("1 rollout of it is not among" in w for w in document["warnings"])


class TestScore:
    def test_failures_as_zeros_and_the_gap(self, told, tmp_path):
        score = told(small(tmp_path))["total"]["score"]
        assert score["mean"] == pytest.approx(4 / 7)
        assert score["failures_as_zero"] == pytest.approx(4 / 12)
        assert score["lost"] == pytest.approx(100 * (4 / 7 - 4 / 12))
        assert score["lost_unit"] == "points"

    def test_what_is_unknown_is_no_failure(self, told, tmp_path):
        score = told(small(tmp_path, ended=False))["total"]["score"]
        assert score["failures_as_zero"] == pytest.approx(4 / 10)

    def test_the_known_case(self, told, tmp_path):
        # Two masked zeros and six unmasked that sum to three: 37.5 against 50.
        rows = [masked(0, n) for n in range(2)] + [row(0, n, float(n < 5)) for n in range(2, 8)]
        score = told(run(tmp_path, rows))["total"]["score"]
        assert (score["mean"], score["failures_as_zero"], score["lost"]) == (0.5, 0.375, 12.5)

    def test_an_interval_by_tasks(self, told, tmp_path):
        from scipy import stats

        rewards = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0.0]])
        path = run(tmp_path, [row(t, g, rewards[t, g]) for t in range(4) for g in range(3)])
        score = told(path)["total"]["score"]
        means = rewards.mean(1)
        assert score["interval"] == pytest.approx(
            stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
        )
        assert "over tasks" in score["interval_method"]

    @pytest.mark.parametrize(
        ("rows", "why"),
        [
            ([row(0, 0, 1.0), row(0, 1, 0.0)], "one task"),
            ([row(0, 0, 1.0), row(1, 0, 1.0)], "same mean"),
            ([masked(0, 0)], "no value"),
        ],
    )
    def test_no_interval(self, told, tmp_path, rows, why):
        score = told(run(tmp_path, rows))["total"]["score"]
        assert score["interval"] is None
        assert why in score["no_interval"]

    def test_rewards_beyond_one_are_in_their_own_unit(self, told, tmp_path):
        score = told(run(tmp_path, [row(0, 0, 4.0), masked(0, 1)]))["total"]["score"]
        assert (score["lost"], score["lost_unit"]) == (2.0, "reward")

    def test_all_masked(self, cli, told, tmp_path):
        path = run(tmp_path, [masked(t, 0, "session_lost") for t in range(3)])
        document = told(path)
        assert document["total"]["score"]["mean"] is None
        assert document["total"]["aggregate"]["metrics"] == {
            "coverage/measured_rollouts": 0,
            "coverage/masked_rollouts": 3,
            "coverage/measured_tasks": 0,
            "coverage/fully_masked_tasks": 3,
        }
        assert "Nothing was measured" in cli("report", path).out

    def test_one_row(self, cli, tmp_path):
        ended = cli("report", run(tmp_path, [row(0, 0, 1.0)]))
        assert ended.code == 0
        assert "The score is 1 over 1 of 1 rollout." in ended.out


class TestCauses:
    def test_kinds_with_counts_shares_and_places(self, told, tmp_path):
        path = small(tmp_path)
        causes = {cause["kind"]: cause for cause in told(path)["total"]["not_measured"]}
        lost = causes["session_lost"]
        assert (lost["became"], lost["count"], lost["standing"]) == ("masked", 2, "registered")
        assert lost["share"] == pytest.approx(2 / 12)
        assert lost["where"] == [f"{path}:4", f"{path}:8"]
        broke = causes["agent_request_failed"]
        assert broke["where"] == [f"{tmp_path / 'rollouts_failures.jsonl'}:1"]
        assert broke["text"] == "cannot connect"
        absent = causes["no row"]
        assert absent["became"] == "omitted"
        inputs = tmp_path / "rollouts_materialized_inputs.jsonl"
        assert absent["where"] == [f"{inputs}:11", f"{inputs}:12"]

    def test_zeros_by_cause(self, told, tmp_path):
        zeros = told(small(tmp_path))["total"]["zeros"]
        assert {(z["cause"], z["name"], z["count"]) for z in zeros} == {
            ("true_zero", "true zero", 1),
            ("failure_kind", "judge_unparseable", 1),
            ("failure_reason", "no answer given", 1),
        }

    def test_a_reason_that_is_none_is_none(self, told, tmp_path):
        path = run(tmp_path, [row(0, 0, 0.0, failure_reason="none")])
        [zero] = told(path)["total"]["zeros"]
        assert zero["cause"] == "true_zero"

    def test_many_texts_are_not_all_listed(self, told, tmp_path):
        rows = [row(0, n, 0.0, failure_reason=f"text {n}") for n in range(TEXTS + 5)]
        zeros = told(run(tmp_path, rows))["total"]["zeros"]
        assert len(zeros) == TEXTS + 1
        assert zeros[-1]["name"] == "5 other texts"
        assert sum(zero["count"] for zero in zeros) == TEXTS + 5

    def test_an_unregistered_name_is_one_line(self, told, tmp_path):
        rows = [masked(0, n, "Judge-Failed") for n in range(3)]
        rows += [masked(1, 0, "swe:oom"), masked(1, 1, "transient"), row(2, 0, 1.0)]
        rows += [masked(3, 0, "bell\a")]
        warnings = told(run(tmp_path, rows))["warnings"]
        first, second = (w for w in warnings if "not registered" in w)
        assert "'Judge-Failed' of 3 rows" in first
        assert r"'bell\x07' of 1 row " in second


class TestPolicy:
    def test_a_judge_that_could_not_be_read(self, told, tmp_path):
        document = told(small(tmp_path), "--on-failure", "judge_unparseable=mask")
        assert account(document) == (12, 6, 3, 1, 2, 0)
        assert document["on_failure"] == {"judge_unparseable": "mask", "*": "mask"}
        [cause] = [c for c in document["total"]["not_measured"] if c["kind"] == "judge_unparseable"]
        assert cause["reason"] == "masked_by_policy"

    def test_failures_that_count(self, told, tmp_path):
        document = told(small(tmp_path), "--on-failure", "*=zero")
        assert account(document) == (12, 10, 0, 0, 2, 0)
        assert document["total"]["score"]["mean"] == pytest.approx(0.4)
        zeros = {(z["cause"], z["name"]): z["count"] for z in document["total"]["zeros"]}
        assert zeros["counted_as_zero", "session_lost"] == 2
        assert zeros["counted_as_zero", "agent_request_failed"] == 1

    def test_a_group_that_leaves(self, told, tmp_path):
        document = told(small(tmp_path), "--on-failure", "agent_request_failed=drop_group")
        assert account(document) == (12, 6, 3, 1, 2, 0)


class TestNumbers:
    def test_pass_at_k_where_groups_allow(self, told, tmp_path):
        found = told(small(tmp_path))["total"]["pass_at_k"]
        assert found["rule"] == "combinatorial"
        values = [(v["k"], round(v["value"], 6), v["tasks"]) for v in found["values"]]
        assert values == [(1, 0.666667, 3), (2, 0.833333, 2), (3, 1.0, 2)]

    def test_and_where_they_do_not(self, told, tmp_path):
        path = run(tmp_path, [row(t, 0, 1.0) for t in range(3)])
        assert told(path)["total"]["pass_at_k"] is None

    def test_the_order_is_that_of_the_rollout_index(self, told, tmp_path):
        path = run(tmp_path, [row(0, 1, 0.9), row(0, 0, 0.2), row(0, 2, 0.5)])
        values = told(path)["total"]["pass_at_k"]["values"]
        assert [v["value"] for v in values] == pytest.approx([0.2, 0.9, 0.9])

    def test_effect_of_masked_rows(self, told, tmp_path):
        path = run(tmp_path, [row(0, 0, 1.0), row(0, 1, 0.6), masked(0, 2), row(1, 0, 1.0)])
        effect = told(path)["total"]["had_masked_rows_voted"]
        assert effect == {
            "num_measured": 3,
            "moved": 2,
            "mean_change": pytest.approx(0.8 - 1.6 / 3),
            "max_change": pytest.approx(0.8 - 1.6 / 3),
            "sign_flips": 1,
        }

    def test_other_numbers_of_measured_rows(self, told, tmp_path):
        rows = [row(0, 0, 1.0, ok=True, latency_ms=10), masked(0, 1, ok=False, latency_ms=30)]
        metrics = told(run(tmp_path, rows))["total"]["aggregate"]["metrics"]
        assert metrics["mean/ok"] == 1.0
        assert metrics["mean/latency_ms"] == 10.0
        assert metrics["mean/output_tokens"] == 5.0

    def test_performance_is_over_masked_rows_too(self, told, tmp_path):
        rows = [
            row(0, 0, 1.0, ng_perf={"num_turns": 2, "total_latency_ms": 100}),
            masked(0, 1, ng_perf={"num_turns": 4, "total_latency_ms": 300}),
        ]
        found = told(run(tmp_path, rows))["total"]["performance"]
        assert found["mean_num_turns"] == 3
        assert found["total_latency_mean_ms"] == 200
        assert found["overall_observability_coverage"] == 1

    def test_a_row_that_reports_without_turns_counts(self, told, tmp_path):
        rows = [
            row(0, 0, 1.0, ng_perf={"completion_tokens": 30, "token_observability_coverage": 1}),
            row(0, 1, 1.0, ng_perf={}),
            row(0, 2, 1.0),
        ]
        assert told(run(tmp_path, rows))["total"]["performance"] == {
            "overall_observability_coverage": pytest.approx(2 / 3),
            "token_observability_coverage": pytest.approx(1 / 3),
            "mean_completion_tokens": 30,
            "median_completion_tokens": 30,
            "total_completion_tokens": 30,
        }

    def test_every_task_with_what_was_meant_and_what_is_missing(self, told, tmp_path):
        document = told(small(tmp_path))
        [section] = document["environments"].values()
        groups = section["aggregate"]["groups"]
        names = ("task", "num_rollouts", "expected_num_rollouts", "missing_num_rollouts")
        assert [tuple(group[name] for name in names) for group in groups] == [
            ("0", 3, 3, 0),  # a masked one was not missing
            ("1", 3, 3, 0),
            ("2", 1, 4, 3),  # one failed, two without a row
        ]
        assert [group["mean/reward"] for group in groups] == pytest.approx([2 / 3, 1 / 3, 1.0])
        assert [g["reward_profile_completion_pct"] for g in groups] == [100, 100, 25]
        assert groups[2]["rollout_infos"] == [
            {"rollout_id": "2:0", "task": "2", "rollout_index": 0, "reward": 1.0,
             "output_tokens": 5.0},
        ]  # fmt: skip
        assert "groups" not in document["total"]["aggregate"]

    def test_tasks_of_two_environments_stand_apart(self, told, tmp_path):
        rows = [
            row(0, 0, 1.0, "a"),
            row(0, 1, 0.0, "a"),
            row(0, 2, 0.5, "b"),
            masked(1, 0, agent="b"),
        ]
        inputs = [meant(0, n, "b") for n in (2, 3)] + [meant(0, n, "a") for n in (0, 1)]
        found = told(run(tmp_path, rows, inputs=inputs, ended=True))["environments"]
        told_of = {
            name: [(g["task"], g["mean/reward"], g["missing_num_rollouts"]) for g in groups]
            for name, section in found.items()
            for groups in [section["aggregate"]["groups"]]
        }
        assert told_of == {"a": [("0", 0.5, 0)], "b": [("0", 0.5, 1)]}

    def test_groups_that_are_smaller_than_their_producer_declared(self, told, tmp_path):
        lines = [
            {"example_id": task, "prompt": f"q{task}", "completion": "", "reward": 1.0}
            for task in (0, 0, 1)
        ]
        path = write(tmp_path / "results.jsonl", lines)
        (tmp_path / "metadata.json").write_text('{"env_id": "e", "rollouts_per_example": 3}')
        [section] = told(path)["environments"].values()
        groups = section["aggregate"]["groups"]
        assert [g["missing_num_rollouts"] for g in groups] == [1, 2]

    def test_failed_attempts_are_in_no_published_metric(self, told, tmp_path):
        path = run(tmp_path, [row(0, 0, 1.0)], failures=[failed(0, 1)])
        found = told(path)["total"]["aggregate"]
        assert "coverage/masked_rollouts" not in found["metrics"]
        assert found["num_repeats"] == 1

    def test_policies_and_steps_where_there_are_several(self, told, tmp_path):
        rows = [row(0, n, float(n), response={"model": f"m{n % 2}"}) for n in range(2)]
        document = told(run(tmp_path, rows))
        found = [(p["policy"], p["measured"], p["score"]["mean"]) for p in document["policies"]]
        assert found == [("m0", 1, 0.0), ("m1", 1, 1.0)]
        assert document["steps"] == []

    def test_two_runs_of_the_same_tasks(self, told, tmp_path):
        for name in ("a", "b"):
            run(tmp_path / name, [row(0, 0, 1.0), row(0, 1, 0.0)])
        document = told(tmp_path)
        assert document["total"]["pass_at_k"]["values"][-1]["k"] == 4


class TestCommand:
    def test_terminal(self, cli, tmp_path, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        out = cli("report", small(tmp_path)).out
        assert "23.8 pt" in out
        assert "rollouts.jsonl:4, 8" in out
        assert "23.8 points lost to what failed" in " ".join(out.split())
        assert max(map(len, out.splitlines())) <= 80

    def test_files_are_written(self, cli, tmp_path):
        path = small(tmp_path)
        out, html = tmp_path / "r.json", tmp_path / "r.html"
        ended = cli("report", path, "--output", out, "--html", html)
        assert ended.code == 0
        assert str(html) in ended.out.replace("\n", "")
        assert json.loads(out.read_text()) == json.loads(cli("report", path, "--json").out)

    def test_quiet(self, cli, tmp_path):
        assert cli("report", small(tmp_path), "--quiet").out == ""

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["nothing.jsonl"], "no such file"),
            ([SAMPLES, "--html", "r.txt"], ".html"),
            ([SAMPLES, "-o", "r.parquet"], ".json"),
            ([SAMPLES, "--reward", "nope"], "nope"),
            ([SAMPLES, "--group-by", "nope"], "nope"),
            ([SAMPLES, "--on-failure", "x"], "KIND=ACTION"),
            ([SAMPLES, "--format", "nope"], "nope"),
        ],
    )
    def test_unusable_input_is_one_line(self, cli, words, told, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ended = cli("report", *words)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert told in ended.err
        assert list(tmp_path.iterdir()) == []

    def test_a_component_as_the_reward(self, told):
        document = told(SAMPLES / "code_repair_traces.jsonl", "--reward", "tests_pass")
        assert document["reward"] == "tests_pass"

    def test_names_cannot_steer_the_terminal(self, cli, tmp_path):
        hostile = "\x1b[31m<b>red</b>\x07\u202e"
        rows = [masked(0, 0, hostile, agent=hostile, failure_reason=hostile), row(1, 0, 0.0)]
        rows[1]["failure_kind"] = hostile
        out = cli("report", run(tmp_path, rows), "--on-failure", f"{hostile}=zero")
        assert out.code == 0
        assert not any(c in out.out + out.err for c in "\x1b\x07\u202e")


def test_numbers_too_large_for_statistics(cli, told, tmp_path):
    rows = [row(0, nth, 1.0, latency=latency) for nth, latency in enumerate([1e308, 1e308, 2.0])]
    document = told(run(tmp_path / "column", rows))
    assert "latency: 2 numbers beyond 1e+150 left out" in document["warnings"]
    assert document["total"]["aggregate"]["metrics"]["max/latency"] == 2.0
    path = run(tmp_path / "reward", [row(0, 0, 1.0), row(0, 1, -1e200)])
    for words in (["report"], ["inspect"], ["score", "-e", "grpo"], ["calibrate"]):
        ended = cli(words[0], path, *words[1:])
        assert (ended.code, ended.out) == (2, "")
        assert f"{path}:2: a reward of -1e+200; beyond 1e+150" in ended.err


def test_the_samples(told):
    document = told(SAMPLES)
    assert account(document) == (38, 32, 2, 4, 0, 0)
    assert list(document["environments"]) == ["arithmetic", "code-repair", "orchard_agent"]


def test_ten_thousand_tasks_and_sixteen_environments(told, tmp_path):
    rows = [row(t, g, float((t + g) % 2), f"env{t % 16}") for t in range(10_000) for g in range(2)]
    document = told(run(tmp_path, rows))
    assert document["total"]["account"]["tasks"] == 10_000
    assert len(document["environments"]) == 16
    assert document["total"]["score"]["mean"] == 0.5


@pytest.mark.parametrize("folder", ["nemo_gym", "verifiers"])
def test_real_files_reconcile(told, real_rollouts, folder):
    seen = 0
    for path in sorted((real_rollouts / folder).glob("*.jsonl")):
        if path.stat().st_size < 1000:  # a Git LFS pointer
            continue
        document = told(path)
        rows = document["read"]["rows"]
        outside = rows - sum(document["total"]["account"][s] for s in STATES)
        assert outside <= 0 or any("frozen" in w for w in document["warnings"])
        assert document["total"]["account"]["expected"] >= rows - max(0, outside)
        seen += 1
    assert seen >= 9
