"""``advlib grade`` as a process that is killed, interrupted, and started twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import graded
from tests.grading import agents
from tests.grading.server import GraderServer, Reply

GROUPS = 30
MOMENTS = (1, 6, 9)  # requests of a run after which it is ended; 24 groups need one


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agents.write(tmp_path_factory.mktemp("episodes") / "traces.jsonl", GROUPS)


@pytest.fixture(scope="module")
def uninterrupted(episodes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    with graded.server(episodes, "rewards") as server:
        process = graded.start(episodes, *graded.http(server), "-o", folder)
        assert process.communicate(timeout=120)[1] == ""
        assert set(server.counts.values()) == {1}
    return graded.outputs(folder)


def wait(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.002)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda s: s.name)
def test_a_run_that_was_ended_goes_on(
    episodes: Path, uninterrupted: dict[str, bytes], tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "out"
    known: set[str] = set()
    with graded.server(episodes, "rewards", delay=0.05) as server:
        words = (episodes, *graded.http(server), "-o", folder, "--max-concurrent", 3)
        for moment in MOMENTS:
            wanted = len(server.calls) + moment
            process = graded.start(*words)
            wait(lambda wanted=wanted: len(server.calls) >= wanted, process)
            process.send_signal(how)
            out, err = process.communicate(timeout=60)
            if how == signal.SIGINT:
                assert process.returncode == 130
                assert out == ""
                entries = len(graded.journal(folder))
                assert err == (
                    f"advlib: interrupted; {folder}/journal.jsonl holds {entries} "
                    f"group{'' if entries == 1 else 's'}, and the same command goes on\n"
                )
            lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
            now = {json.loads(line)["group"] for line in lines if line.endswith(b"\n")}
            assert known <= now
            known = now
        before = dict(server.counts)
        ended = graded.start(*words)
        assert ended.communicate(timeout=120)[1] == ""
        assert ended.returncode == 0
        # What was in the journal was not asked for again.
        assert all(server.counts[group] == before[group] for group in known)
        assert set(server.counts) == set(graded.journal(folder))
        total = sum(server.counts.values())
        assert total <= len(server.counts) + 3 * len(MOMENTS), "more was lost than was in flight"
    assert graded.outputs(folder) == uninterrupted
    assert len(graded.journal(folder)) == len(
        (folder / "journal.jsonl").read_text().splitlines()
    ), "a group was recorded twice"


def test_a_run_that_was_killed_while_it_wrote_leaves_whole_files(
    episodes: Path, uninterrupted: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    with graded.server(episodes, "rewards") as server:
        words = (episodes, *graded.http(server), "-o", folder)
        process = graded.start(*words)
        wait(lambda: list(folder.glob(".annotations.jsonl.*.tmp")), process)
        process.kill()
        process.communicate(timeout=60)
        for name in graded.OUTPUTS:
            if (folder / name).exists():
                assert (folder / name).read_bytes() == uninterrupted[name]
        again = graded.start(*words)
        assert again.communicate(timeout=120)[1] == ""
        assert set(server.counts.values()) == {1}
    assert graded.outputs(folder) == uninterrupted


def test_two_processes_in_one_folder_are_refused(episodes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with graded.server(episodes, "rewards", fault=lambda call: Reply(b"", hang=True)) as server:
        words = (episodes, *graded.http(server), "-o", folder)
        first = graded.start(*words)
        wait(lambda: server.calls, first)
        second = graded.start(*words)
        out, err = second.communicate(timeout=60)
        assert (second.returncode, out) == (2, "")
        assert err == (
            f"advlib: {folder}: process {first.pid} is grading into this folder; wait for it or "
            "end it\n"
        )
        first.send_signal(signal.SIGINT)
        assert first.communicate(timeout=60)[1].startswith("advlib: interrupted")
        assert first.returncode == 130


def test_ctrl_c_while_many_groups_are_known_already(episodes: Path, tmp_path: Path) -> None:
    """The journal is gone through without a wait for any grader, and yet it ends at once."""
    folder = tmp_path / "out"
    hanging: list[str] = []

    def last_hangs(call: object) -> Reply | None:
        return Reply(b"", hang=True) if hanging and call.name in hanging else None  # type: ignore[attr-defined]

    with graded.server(episodes, "rewards", fault=last_hangs) as server:
        hanging.append(graded.mixed(episodes)[-1])
        words = (episodes, *graded.http(server), "-o", folder)
        _end_at(server, hanging[0], words)
        _end_at(server, hanging[0], words)
        assert server.counts[hanging[0]] == 2
        assert hanging[0] not in graded.journal(folder)


def _end_at(server: GraderServer, group: str, words: tuple[object, ...]) -> None:
    process = graded.start(*words)
    seen = server.counts[group]
    wait(lambda: server.counts[group] > seen, process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].startswith("advlib: interrupted")


def test_a_terminal_gets_a_bar_with_live_counts(episodes: Path, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    slow = graded.mixed(episodes)[-1]
    delayed = Reply.of("no verdict", delay=1.0)  # while the bar is drawn again
    with graded.server(
        episodes, "rewards", fault=lambda call: delayed if call.name == slow else None
    ) as server:
        process = subprocess.Popen(
            [*graded.PROGRAM, "grade", str(episodes), *graded.http(server), "-o", tmp_path / "out"],
            stdout=theirs,
            stderr=theirs,
            stdin=theirs,
            env=graded.ENVIRONMENT | {"TERM": "xterm-256color", "COLUMNS": "120"},
        )
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # how Linux says that the other side is closed
            pass
        finally:
            os.close(ours)
        assert process.wait(timeout=60) == 0
    assert b"grading" in written
    assert b"24 graded" in written or b"23 graded" in written
    assert b"nothing to grade" in written
    assert b"tokens" in written
