"""``advlib grade``: what it writes and prints, how it goes on, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from advlib import adapters
from advlib.adapters.episodes import index_episodes
from advlib.grading._privileged import censored
from tests.cli import graded
from tests.grading import agents, recompute
from tests.grading.server import Call, GraderServer, Reply

GROUPS = 12
KEY = "sk-never-shown-4711"
CANARY = "canary-9b1f: assert frobnicate(41) == 42"


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agents.write(tmp_path_factory.mktemp("episodes") / "traces.jsonl", GROUPS)


@pytest.fixture(scope="module")
def verdicts(episodes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("verdicts")
    modes = ("rewards", "advantages")
    return {mode: graded.replay(folder / f"{mode}.jsonl", episodes, mode) for mode in modes}


@pytest.fixture(autouse=True)
def _no_key_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(graded.SECRET, raising=False)


def refused(ended: Any, *words: str) -> None:
    assert ended.code == 2, ended
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith("advlib: ")
    for word in words:
        assert word in line


class TestWhatComesOut:
    @pytest.mark.parametrize("mode", ["rewards", "advantages"])
    def test_every_number_follows_from_the_files(self, cli, episodes, verdicts, tmp_path, mode):
        folder = tmp_path / "out"
        replay = f"replay:{verdicts[mode]}"
        ended = cli("grade", episodes, "-g", replay, "-o", folder, "--mode", mode, "--json")
        assert (ended.code, ended.err) == (0, "")
        found = json.loads(ended.out)
        assert found == json.loads((folder / "summary.json").read_text())
        compared = recompute.verify([episodes], folder, mode=mode)
        groups = found["groups"]
        assert groups["count"] == groups["read"] == GROUPS == compared["groups"]
        assert groups["graded"] == compared["graded"] > 0
        assert groups["nothing_to_grade"] == GROUPS - compared["graded"]
        assert found["samples"]["credited"] == compared["traces"]
        assert found["hacks"]["confirmed"] == compared["confirmed"]
        assert found["hacks"]["failed_citations"] == compared["downgraded"]
        assert found["usage"] == {
            "answers": groups["graded"],
            "input_tokens": 100 * groups["graded"],
            "output_tokens": 10 * groups["graded"],
            "cost": 0.25 * groups["graded"],
        }
        assert found["metrics"]["gar/graded"] == 1.0
        assert sorted(path.name for path in folder.iterdir()) == sorted([*found["files"], "lock"])

    def test_every_rollout_is_accounted_for(self, cli, episodes, verdicts, tmp_path):
        replay = f"replay:{verdicts['rewards']}"
        ended = cli("grade", episodes, "-g", replay, "-o", tmp_path / "out", "--json")
        found = json.loads(ended.out)
        table = adapters.read(episodes)
        assert sum(found["samples"].values()) == found["read"]["rows"] == len(table)
        assert found["read"]["reported"] == {"grade_trace": 1}
        episode_ids = {row["episode_id"] or row["rollout_id"] for row in table.to_pylist()}
        counted = found["candidates"]["count"] + found["candidates"]["left_out"]
        assert counted == len(episode_ids) == 8 * GROUPS

    def test_the_terminal_tells_the_same(self, cli, episodes, verdicts, tmp_path):
        replay = f"replay:{verdicts['rewards']}"
        told = " ".join(cli("grade", episodes, "-g", replay, "-o", tmp_path / "out").out.split())
        found = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert f"{GROUPS}; {found['groups']['graded']} graded, 2 with nothing to grade" in told
        assert "1 grade_trace (a grader's own transcript, no rollout of the policy)" in told
        assert f"{found['hacks']['confirmed']} confirmed" in told
        assert "gar/lambda" in told
        quiet = cli("grade", episodes, "-g", replay, "-o", tmp_path / "out", "--quiet")
        assert (quiet.code, quiet.out, quiet.err) == (0, "", "")

    def test_annotations_join_their_traces(self, cli, episodes, verdicts, tmp_path):
        folder = tmp_path / "out"
        cli("grade", episodes, "-g", f"replay:{verdicts['advantages']}", "-o", folder,
            "--mode", "advantages")  # fmt: skip
        table = adapters.read([episodes, folder / "annotations.jsonl", folder / "grades.jsonl"])
        rows = {row["rollout_id"]: row for row in table.to_pylist()}
        made = pq.read_table(folder / "annotations.parquet").to_pylist()
        assert adapters.report(table).reported == {
            "annotation_joined": len(made),
            "grade_trace": 1 + GROUPS,
        }
        for one in made:
            row = rows[one["trace_id"]]
            assert (row["advantage"], row["tier"], row["hack"]) == (
                one["advantage"], one["tier"], one["hack"],
            )  # fmt: skip
            wide = {"slight": 0.25, "clear": 0.5, "large": 1.0}
            assert row["margins"] == [wide[word] for word in one["margins"]]

    def test_limit_takes_the_first_groups(self, cli, episodes, verdicts, tmp_path):
        replay = f"replay:{verdicts['rewards']}"
        whole, some = tmp_path / "whole", tmp_path / "some"
        cli("grade", episodes, "-g", replay, "-o", whole)
        ended = cli("grade", episodes, "-g", replay, "-o", some, "--limit", 3)
        assert f"{GROUPS}, the first 3 of them" in " ".join(ended.out.split())
        lines = (some / "annotations.jsonl").read_bytes()
        assert lines
        assert (whole / "annotations.jsonl").read_bytes().startswith(lines)

    def test_another_limit_goes_on_with_what_is_there(self, cli, episodes, tmp_path):
        folder, names = tmp_path / "out", graded.mixed(episodes)
        with graded.server(episodes, "rewards") as server:
            words = ("grade", episodes, *graded.http(server), "-o", folder)
            cli(*words, "--limit", 3)
            first = set(server.counts)
            assert 0 < len(first) <= 3
            assert cli(*words).code == 0
            before = graded.outputs(folder)
            cli(*words, "--limit", 3)
            cli(*words)
            assert server.counts == dict.fromkeys(names, 1)
        assert graded.outputs(folder) == before
        assert recompute.verify([episodes], folder)["fallbacks"] == 0

    def test_a_folder_may_hold_what_is_made_of_it(self, cli, episodes, verdicts, tmp_path):
        runs = tmp_path / "runs"
        runs.mkdir()
        (runs / "traces.jsonl").write_bytes(episodes.read_bytes())
        words = ("grade", runs, "-g", f"replay:{verdicts['rewards']}", "-o", runs / "graded")
        assert cli(*words).code == 0
        first = graded.outputs(runs / "graded")
        again = cli(*words, "--json")
        assert (again.code, again.err) == (0, "")
        assert json.loads(again.out)["groups"]["graded_earlier"] == len(graded.mixed(episodes))
        assert graded.outputs(runs / "graded") == first
        other = cli(*words[:-1], tmp_path / "other", "--json")
        assert (other.code, other.err) == (
            0,
            "",
        )  # of the earlier grading only its journal is left out
        assert json.loads(other.out)["read"]["reported"]["annotation_joined"] > 0
        assert graded.outputs(tmp_path / "other") == first

    def test_it_may_write_where_annotations_are_looked_for(self, cli, episodes, verdicts, tmp_path):
        traces = tmp_path / "traces.jsonl"
        traces.write_bytes(episodes.read_bytes())
        folder = tmp_path / "annotations"
        words = ("grade", traces, "-g", f"replay:{verdicts['rewards']}", "-o", folder, "-q")
        for _ in range(2):
            assert cli(*words) == (0, "", "")
        assert recompute.verify([episodes], folder)["graded"] > 0
        account = adapters.report(adapters.read(traces))
        names = [Path(file.path).name for file in account.files]
        assert names == ["traces.jsonl", "annotations.jsonl", "grades.jsonl"]

    def test_candidate_statistics_differ_from_those_of_traces(
        self, cli, episodes, verdicts, tmp_path
    ):
        replay = f"replay:{verdicts['rewards']}"
        for name in ("traces", "candidates"):
            cli("grade", episodes, "-g", replay, "-o", tmp_path / name, "--statistics", name)
        one, two = (graded.outputs(tmp_path / name) for name in ("traces", "candidates"))
        assert one["grades.jsonl"] == two["grades.jsonl"]
        assert one["annotations.jsonl"] != two["annotations.jsonl"]


class TestOtherFormats:
    @pytest.mark.filterwarnings("ignore::advlib.adapters.ReadWarning")
    @pytest.mark.parametrize(
        "name",
        [
            "verifiers/math_python_g3",
            "verifiers/gsm8k_all_fail",
            "nemo_gym/resources_servers_blackjack",
        ],
    )
    def test_real_files_join_by_file_and_line(self, cli, real_rollouts, tmp_path, name):
        """These formats have no trace ids and no token masks: annotations are `info` alone."""
        source = real_rollouts / f"{name}.jsonl"

        def ranks(group: str, labels: list[str]) -> str:
            candidates = [{"label": label} for label in labels]
            tiers = [[label] for label in labels]
            return json.dumps({"candidates": candidates, "ranking": tiers})

        with index_episodes(source) as index, (tmp_path / "replay.jsonl").open("w") as file:
            for key in index.groups:
                size = len(index.load(key))
                labels = [f"c{nth:02d}" for nth in range(1, size + 1)]
                file.write(json.dumps({"group": key, "text": ranks(key, labels)}) + "\n")
        folder = tmp_path / "out"
        ended = cli("grade", source, "-g", f"replay:{tmp_path}/replay.jsonl", "-o", folder,
                    "--mode", "advantages", "--json")  # fmt: skip
        found = json.loads(ended.out)
        assert found["groups"]["graded"] == found["groups"]["count"] > 0
        table = adapters.read([source, folder / "annotations.jsonl"])
        assert adapters.report(table).reported == {"annotation_joined": len(table)}
        assert table["advantage"].null_count == table["tier"].null_count == 0
        lines = (folder / "annotations.jsonl").read_text().splitlines()
        assert not any("branches" in json.loads(line) for line in lines)

    def test_groups_of_one_are_told(self, cli, real_rollouts, tmp_path):
        source = real_rollouts / "verifiers" / "wiki_search_g1_100.jsonl"
        (tmp_path / "replay.jsonl").write_text("")
        words = ("grade", source, "-g", f"replay:{tmp_path}/replay.jsonl")
        for mode, told in (("rewards", " with different rewards"), ("advantages", "")):
            ended = cli(*words, "-o", tmp_path / mode, "--mode", mode, "-q")
            assert ended.code == 0
            assert f"nothing was graded: no group has two candidates{told}\n" in ended.err


class TestGoingOn:
    def test_a_finished_run_is_made_again_from_its_journal(self, cli, episodes, verdicts, tmp_path):
        folder = tmp_path / "out"
        words = ("grade", episodes, "-g", f"replay:{verdicts['rewards']}", "-o", folder, "--json")
        first = json.loads(cli(*words).out)
        before, lines = graded.outputs(folder), (folder / "journal.jsonl").read_bytes()
        for name in graded.OUTPUTS:
            (folder / name).unlink()
        again = json.loads(cli(*words).out)
        assert graded.outputs(folder) == before
        assert (folder / "journal.jsonl").read_bytes() == lines
        assert first["groups"]["graded_earlier"] == 0
        assert again["groups"]["graded_earlier"] == first["groups"]["graded"]

    def test_its_journal_is_a_replay_file(self, cli, episodes, tmp_path):
        """Answers of a server, used again, give the same annotations."""
        with graded.server(episodes, "rewards") as server:
            cli("grade", episodes, *graded.http(server), "-o", tmp_path / "one")
        replay = f"replay:{tmp_path}/one/journal.jsonl"
        ended = cli("grade", episodes, "-g", replay, "-o", tmp_path / "two")
        assert (ended.code, ended.err) == (0, "")
        assert graded.outputs(tmp_path / "one") == graded.outputs(tmp_path / "two")

    def test_another_grading_is_refused(self, cli, episodes, verdicts, tmp_path):
        folder = tmp_path / "out"
        words = ("grade", episodes, "-g", f"replay:{verdicts['rewards']}", "-o", folder)
        assert cli(*words).code == 0
        before = graded.outputs(folder)
        refused(cli(*words, "--f-min", 0.25), "f_min was 0.5 and is 0.25", "--restart")
        refused(cli(*words, "--statistics", "candidates"), 'statistics was "traces"')
        assert graded.outputs(folder) == before
        assert cli(*words, "--max-concurrent", 1, "--timeout", 5).code == 0
        assert cli(*words, "--f-min", 0.25, "--restart").code == 0
        assert graded.outputs(folder)["annotations.jsonl"] != before["annotations.jsonl"]
        recompute.verify([episodes], folder, f_min=0.25)

    def test_a_changed_input_is_refused(self, cli, episodes, verdicts, tmp_path):
        copy = tmp_path / "traces.jsonl"
        copy.write_bytes(episodes.read_bytes())
        words = ("grade", copy, "-g", f"replay:{verdicts['rewards']}", "-o", tmp_path / "out")
        assert cli(*words).code == 0
        copy.write_bytes(copy.read_bytes() + b"\n")
        refused(cli(*words), f"{copy} has changed")

    def test_a_torn_journal_is_mended_and_said(self, cli, episodes, verdicts, tmp_path):
        folder = tmp_path / "out"
        words = ("grade", episodes, "-g", f"replay:{verdicts['rewards']}", "-o", folder)
        cli(*words)
        before = graded.outputs(folder)
        path = folder / "journal.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        ended = cli(*words)
        assert ended.code == 0
        assert "a last line that was torn" in ended.err
        assert graded.outputs(folder) == before

    def test_entries_of_other_content_are_not_believed(self, cli, episodes, verdicts, tmp_path):
        folder = tmp_path / "out"
        words = ("grade", episodes, "-g", f"replay:{verdicts['rewards']}", "-o", folder)
        cli(*words)
        before = graded.outputs(folder)
        path = folder / "journal.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [line | {"digest": "0" * 64, "text": "{}"} for line in lines]
        equal = set(graded.labels_of(episodes, "rewards")) - set(graded.mixed(episodes))
        changed.append(lines[0] | {"group": min(equal)})  # of a group that needs no grader
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
        ended = cli(*words)
        assert ended.code == 0
        assert "none of its entries fits" in ended.err
        assert graded.outputs(folder) == before
        assert len(path.read_text().splitlines()) == 2 * len(lines) + 1

    def test_fallbacks_are_tried_again_when_asked(self, cli, episodes, tmp_path):
        broken = dict.fromkeys(graded.mixed(episodes)[:2], True)
        bad = graded.mixed(episodes)[2]

        def fault(call: Call) -> Reply | None:
            if broken.get(call.name):
                return Reply.error(400, "the model is out of order")
            return Reply.of("no verdict") if broken and call.name == bad else None

        folder = tmp_path / "out"
        with graded.server(episodes, "rewards", fault=fault) as server:
            words = ("grade", episodes, *graded.http(server), "-o", folder, "--max-retries", 0)
            ended = cli(*words)
            assert ended.code == 0
            assert "3 groups of 10 fell back" in ended.err
            assert "2 error, 1 invalid; 30%" in ended.err
            found = json.loads((folder / "summary.json").read_text())
            assert found["groups"]["fallbacks"] == {"error": 2, "invalid": 1}
            assert found["metrics"]["gar/fallback/error"] == pytest.approx(0.2)
            recompute.verify([episodes], folder)
            cli(*words)
            assert set(server.counts.values()) == {1}, "asked again without --retry"
            before = graded.outputs(folder)
            ended = cli(*words, "--retry", "error")
            assert ended.code == 3
            assert "the grader failed for 2 groups in a row" in ended.err
            assert graded.outputs(folder) == before
            recompute.verify([episodes], folder)
            broken.clear()
            assert "1 invalid" in cli(*words, "--retry", "error,timeout").err
            assert {server.counts[group] for group in graded.mixed(episodes)[:2]} == {3}
            assert cli(*words, "--retry", "invalid").err == ""
            assert server.counts[bad] == 2
            assert sum(server.counts.values()) == 15
        compared = recompute.verify([episodes], folder)
        assert compared["fallbacks"] == 0
        assert graded.journal(folder)[bad]["text"] != "no verdict"


class TestTheGrader:
    def test_a_key_goes_to_the_server_and_nowhere_else(self, cli, episodes, tmp_path, monkeypatch):
        monkeypatch.setenv(graded.SECRET, KEY)
        folder = tmp_path / "out"

        def echo(call: Call) -> Reply | None:
            said = json.dumps(call.headers)
            return Reply.error(400, said) if call.name == graded.mixed(episodes)[0] else None

        with graded.server(episodes, "rewards", fault=echo) as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", folder)
            assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {KEY}"}
        assert ended.code == 0
        assert KEY not in ended.out + ended.err
        for path in folder.iterdir():
            assert KEY.encode() not in path.read_bytes(), path

    def test_an_unreachable_server_is_given_up(self, cli, episodes, tmp_path):
        folder = tmp_path / "out"
        ended = cli("grade", episodes, "-g", "http", "--base-url", "http://127.0.0.1:1/v1",
                    "--model", "m", "--max-retries", 0, "-o", folder, "--json")  # fmt: skip
        assert ended.code == 3
        first, *others = ended.err.splitlines()
        assert first.startswith("warning: the grader failed for 8 groups in a row")
        assert "the same command tries it again" in first
        assert "10 groups of 10 fell back" in others[0]
        found = json.loads(ended.out)
        assert found["stopped"]["errors"] == 8
        assert "http://127.0.0.1:1/v1" in found["stopped"]["last"]
        assert found["groups"]["fallbacks"] == {"error": 10}
        assert graded.journal(folder) == {}
        lines = map(json.loads, (folder / "annotations.jsonl").read_text().splitlines())
        reasons = [line["info"].get("gar", {}).get("fallback_reason") for line in lines]
        assert set(reasons) == {None, "error"}  # None where there was nothing to grade

    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_a_server_that_refuses_is_quoted_and_can_be_tried_again(
        self, cli, episodes, tmp_path, status
    ):
        folder = tmp_path / "out"
        closed = [True]

        def fault(call: Call) -> Reply | None:
            return Reply.error(status, "this key has expired") if closed else None

        with graded.server(episodes, "rewards", fault=fault) as server:
            words = ("grade", episodes, *graded.http(server), "-o", folder)
            ended = cli(*words)
            assert ended.code == 3
            assert str(status) in ended.err
            assert "this key has expired" in ended.err
            assert len(server.calls) <= 10
            assert graded.journal(folder) == {}
            closed.clear()
            assert cli(*words).code == 0
        assert recompute.verify([episodes], folder)["fallbacks"] == 0

    def test_what_was_graded_before_the_grader_failed_is_kept(self, cli, episodes, tmp_path):
        names = graded.mixed(episodes)

        def fault(call: Call) -> Reply | None:
            late = closed and names.index(call.name) >= 4
            return Reply.error(401, "this key has expired") if late else None

        folder, closed = tmp_path / "out", [True]
        with graded.server(episodes, "rewards", fault=fault) as server:
            words = ("grade", episodes, *graded.http(server), "-o", folder, "--stop-after", 2,
                     "--max-concurrent", 1, "--max-retries", 0)  # fmt: skip
            ended = cli(*words)
            assert ended.code == 3
            found = json.loads((folder / "summary.json").read_text())
            assert found["groups"]["graded"] == 4
            assert found["groups"]["fallbacks"] == {"error": 6}
            assert "not asked, after 2 errors of the grader in a row" in ended.err
            assert list(graded.journal(folder)) == names[:4]
            closed.clear()
            before = server.counts.copy()
            assert cli(*words).err == ""
            again = {name for name in names if server.counts[name] > before[name]}
            assert again == set(names[4:])
        assert recompute.verify([episodes], folder)["fallbacks"] == 0

    def test_a_few_groups_that_all_fail_are_given_up_too(self, cli, episodes, tmp_path):
        fault = Reply.error(400, "no such model")
        with graded.server(episodes, "rewards", fault=lambda call: fault) as server:
            words = ("grade", episodes, *graded.http(server), "-o", tmp_path / "out", "--limit", 2)
            ended = cli(*words)
            assert ended.code == 3
            assert "no such model" in ended.err
            assert graded.journal(tmp_path / "out") == {}
            ended = cli(*words, "--stop-after", 0)
        assert ended.code == 0
        assert "100%" in ended.err
        assert all(
            line["fallback_reason"] == "error" for line in graded.journal(tmp_path / "out").values()
        )

    def test_groups_that_were_not_recorded_stop_no_replay(self, cli, episodes, verdicts, tmp_path):
        last = graded.mixed(episodes)[-1]
        lines = verdicts["rewards"].read_text().splitlines()
        one = tmp_path / "one.jsonl"
        one.write_text(next(line for line in lines if json.loads(line)["group"] == last) + "\n")
        words = ("grade", episodes, "-g", f"replay:{one}", "-o", tmp_path / "out")
        ended = cli(*words, "--stop-after", 1)
        assert ended.code == 0
        assert f"{len(graded.mixed(episodes)) - 1} error" in ended.err
        one.write_text(one.read_text().replace(last, "another"))
        ended = cli(*words[:-1], tmp_path / "none")
        assert ended.code == 3
        assert "its groups: 'another'" in ended.err

    def test_errors_that_pass_are_recorded_in_between(self, cli, episodes, tmp_path):
        names = graded.mixed(episodes)

        def fault(call: Call) -> Reply | None:
            odd = names.index(call.name) % 2
            return Reply.error(400, "busy") if odd else None

        folder = tmp_path / "out"
        with graded.server(episodes, "rewards", fault=fault) as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", folder,
                        "--stop-after", 2, "--max-concurrent", 1)  # fmt: skip
        assert ended.code == 0
        assert recompute.verify([episodes], folder)["fallbacks"] == 5

    def test_too_many_fallbacks_are_code_3(self, cli, episodes, tmp_path):
        names = graded.mixed(episodes)
        fault = lambda call: Reply.of("") if call.name in names[:3] else None  # noqa: E731
        with graded.server(episodes, "rewards", fault=fault) as server:
            words = ("grade", episodes, *graded.http(server), "-o", tmp_path / "out", "-q")
            assert cli(*words, "--max-fallbacks", 0.3).code == 0
            ended = cli(*words, "--max-fallbacks", 0.2)
        assert ended.code == 3
        assert "3 groups of 10 fell back" in ended.err

    def test_a_slow_grader_times_out(self, cli, episodes, tmp_path):
        slow = graded.mixed(episodes)[0]
        fault = lambda call: Reply(b"", hang=True) if call.name == slow else None  # noqa: E731
        folder = tmp_path / "out"
        with graded.server(episodes, "rewards", fault=fault) as server:
            cli("grade", episodes, *graded.http(server), "-o", folder, "--timeout", 4)
        assert graded.journal(folder)[slow]["fallback_reason"] == "timeout"
        assert recompute.verify([episodes], folder)["fallbacks"] == 1

    def test_stale_groups_are_not_asked_about(self, cli, episodes, tmp_path):
        folder = tmp_path / "out"
        with graded.server(episodes, "rewards") as server:
            cli("grade", episodes, *graded.http(server), "-o", folder,
                "--step", 22, "--max-off-policy-steps", 1)  # fmt: skip
            asked = set(server.counts)
        starts = {}
        for line in map(json.loads, episodes.read_text().splitlines()):
            work = line.get("run", {}).get("work", {})
            if "policy" in work:
                starts.setdefault(line["group"]["id"], []).append(work["policy"]["start"])
        stale = {name for name, every in starts.items() if min(every) + 2 <= 22}
        stale &= set(graded.mixed(episodes))
        assert stale
        found = graded.journal(folder)
        assert {n for n, line in found.items() if line["fallback_reason"] == "stale"} == stale
        assert asked == set(graded.mixed(episodes)) - stale
        recompute.verify([episodes], folder)


class TestPrivileged:
    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        path = tmp_path / "hidden_tests.py"
        path.write_text(f"# hidden\n{CANARY}\n")
        return path

    def test_it_reaches_the_grader_and_no_file(self, cli, episodes, tmp_path, secret):
        folder = tmp_path / "out"
        first = graded.mixed(episodes)[0]

        def echo(call: Call) -> Reply | None:
            """A server that repeats what it was sent."""
            if call.name != first:
                return None
            asked = call.body["messages"][1]["content"]
            at = asked.index(CANARY)
            return Reply.error(400, asked[at - 20 : at + 60])

        text = secret.read_text()
        made = graded.server(episodes, "rewards", fault=echo, tests=text)
        with made as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", folder,
                        "--privileged", f"tests={secret}", "--json")  # fmt: skip
            assert all(CANARY in json.dumps(call.body) for call in server.calls)
            assert set(server.counts) == set(graded.mixed(episodes))
        assert ended.code == 0
        assert CANARY not in ended.out + ended.err
        for path in folder.iterdir():
            assert b"frobnicate" not in path.read_bytes(), path
        assert "*****" in graded.journal(folder)[first]["detail"]
        for line in (folder / "grades.jsonl").read_text().splitlines():
            (trace,) = json.loads(line)["traces"]
            assert trace["info"]["privileged"] == {"tests": len(text)}
        told = json.loads((folder / "run.json").read_text())["settings"]["privileged"]
        assert [one["name"] for one in told] == ["tests"]

    def test_a_task_s_own_text_goes_with_its_groups_alone(self, cli, episodes, tmp_path):
        with index_episodes(episodes) as index:
            tasks = dict(index.tasks)
        rows = adapters.read(episodes)
        assert (
            tasks.items()
            <= dict(zip(rows["group"].to_pylist(), rows["task"].to_pylist(), strict=True)).items()
        )
        wanted = graded.mixed(episodes)
        own = {key: f"{CANARY} {nth}." for nth, key in enumerate(dict.fromkeys(tasks.values()))}
        lines = [{"task": task, "name": "tests", "text": text} for task, text in own.items()]
        private = tmp_path / "private.jsonl"
        private.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with GraderServer(lambda call: Reply.of("no verdict")) as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", tmp_path / "out",
                        "--privileged-by-task", private)  # fmt: skip
            asked = [call.body["messages"][1]["content"] for call in server.calls]
        assert ended.code == 0
        assert len(asked) == len(wanted)
        seen = sorted(key for text in asked for key in own.values() if key in text)
        assert seen == sorted(own[tasks[group]] for group in wanted)
        for path in (tmp_path / "out").iterdir():
            assert b"frobnicate" not in path.read_bytes(), path

    def test_a_request_longer_than_allowed_is_not_sent(self, cli, episodes, tmp_path):
        with GraderServer(lambda call: Reply.of("no verdict")) as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", tmp_path / "out",
                        "--max-chars", 1000)  # fmt: skip
            assert not server.calls
        assert ended.code == 3
        assert "max_chars is 1000" in ended.err

    def test_nor_any_message_when_all_fails(self, cli, episodes, tmp_path, secret):
        fault = lambda call: Reply.error(400, f"bad request: {CANARY}")  # noqa: E731
        text = secret.read_text()
        with graded.server(episodes, "rewards", fault=fault, tests=text) as server:
            ended = cli("grade", episodes, *graded.http(server), "-o", tmp_path / "out",
                        "--privileged", f"tests={secret}")  # fmt: skip
        assert ended.code == 3
        assert "bad request" in ended.err
        assert "frobnicate" not in ended.out + ended.err
        for path in (tmp_path / "out").iterdir():
            assert b"frobnicate" not in path.read_bytes(), path

    def test_changed_material_is_another_grading(self, cli, episodes, verdicts, tmp_path, secret):
        words = ("grade", episodes, "-g", f"replay:{verdicts['rewards']}", "-o", tmp_path / "out",
                 "--privileged", f"tests={secret}")  # fmt: skip
        assert cli(*words).code == 0
        secret.write_text("other")
        refused(cli(*words), "privileged was")

    def test_short_words_of_it_are_not_taken_out_of_messages(self):
        assert censored("assert that it is so", ["assert frobnicate"]) == "assert that it is so"
        assert censored("a: " + CANARY + "!", [CANARY]) == "a: " + "*" * len(CANARY) + "!"
        assert censored("short", [CANARY]) == "short"


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["-g", "file"], "--grader file: wanted http or replay:FILE"),
            (["-g", "replay:"], "wanted http or replay:FILE"),
            (["-g", "http", "--model", "m"], "--grader http needs --base-url"),
            (["-g", "http", "--base-url", "http://h/v1"], "--grader http needs --model"),
            (["-g", "http", "--base-url", "ftp://h", "--model", "m"], "--base-url must begin"),
            (
                ["-g", "http", "--base-url", f"http://u:{KEY}@h", "--model", "m"],
                "--base-url must hold no credentials",
            ),
            (["-g", "replay:absent.jsonl"], "absent.jsonl: No such file"),
            (["-g", "REPLAY", "--model", "m"], "--model is an option of --grader http"),
            (["-g", "REPLAY", "--mode", "reward"], "Did you mean rewards?"),
            (["-g", "REPLAY", "--statistics", "rows"], "--statistics 'rows' is not known"),
            (["-g", "REPLAY", "--f-min", "2"], "--f-min must be in [0, 1]; got 2.0"),
            (["-g", "REPLAY", "--lambda-max", "0.5"], "--lambda-max must be at least 1"),
            (["-g", "REPLAY", "--timeout", "0"], "--timeout must be positive"),
            (["-g", "REPLAY", "--timeout", "nan"], "--timeout must be positive"),
            (["-g", "REPLAY", "--retry", "errors"], "Did you mean error?"),
            (["-g", "REPLAY", "--step", "3"], "--step and --max-off-policy-steps"),
            (["-g", "REPLAY", "--privileged", "x"], "wanted NAME=FILE"),
            (["-g", "REPLAY", "--privileged", "x=absent"], "absent: No such file"),
            (["-g", "REPLAY", "--format", "csv"], "--format 'csv' is not known"),
            (["-g", "REPLAY", "--reward", "testz"], "a component 'testz'; there are: 'tests'"),
            (
                ["-g", "http", "--base-url", "http://h", "--model", "m", "--input-price", "1"],
                "--input-price and --output-price must be given together",
            ),
        ],
        ids=lambda words: " ".join(words)[-40:] if isinstance(words, list) else "",
    )
    def test_bad_options(self, cli, episodes, verdicts, tmp_path, words, told):
        replay = f"replay:{verdicts['rewards']}"
        words = [replay if word == "REPLAY" else word for word in words]
        ended = cli("grade", episodes, *words, "-o", tmp_path / "out")
        refused(ended, told)
        assert KEY not in ended.err
        assert not (tmp_path / "out").exists()

    def test_an_output_that_is_a_file(self, cli, episodes, verdicts, tmp_path):
        (tmp_path / "out").write_text("")
        words = ("-g", f"replay:{verdicts['rewards']}", "-o", tmp_path / "out")
        refused(cli("grade", episodes, *words), "wanted a folder; that is a file")

    def test_an_output_of_other_things(self, cli, episodes, verdicts, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        words = ("-g", f"replay:{verdicts['rewards']}", "-o", tmp_path)
        refused(cli("grade", episodes, *words), "holds notes.txt and no run.json")
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]  # no lock is left either
