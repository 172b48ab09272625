"""The journal, the lock and the record of a grading."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advlib.cli._errors import Refusal
from advlib.cli._grading_journal import Entry, Journal, Usage, line_of
from advlib.cli._grading_lock import locked
from advlib.cli._grading_privileged import Texts, texts
from advlib.cli._grading_record import NAMES, begin, inputs


def entry(group: str, text: str = "{}", **fields: object) -> Entry:
    return Entry(group, "d", {"c01": "t1"}, text, "g1", **fields)  # type: ignore[arg-type]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.jsonl")
    hostile = entry("a\n\u2028\x85\x00", 'text\r\n\u2029"\ud800', usage=Usage(1, 2, 0.125))
    failed = entry("b", "", fallback_reason="error", detail="it said no")
    with Journal(path) as journal:
        journal.add(hostile)
        journal.add(failed)
        assert (tmp_path / "journal.jsonl").read_bytes() == line_of(hostile) + line_of(failed)
    with Journal(path) as journal:
        assert [journal.get(name) for name in ("b", hostile.group)] == [failed, hostile]
        assert journal.get("c") is None
        assert journal.dropped == 0
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 2


def test_the_newest_entry_of_a_group_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.jsonl")
    with Journal(path) as journal:
        journal.add(entry("a", "", fallback_reason="timeout"))
        journal.add(entry("b"))
        journal.add(entry("a", "late"))
    with Journal(path) as journal:
        assert len(journal) == 2
        for name, text in (("a", "late"), ("b", "{}")):
            assert journal.get(name).text == text
        journal.add(entry("c", "more"))
        assert [journal.get(name).text for name in "acb"] == ["late", "more", "{}"]


def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first, second = line_of(entry("a")), line_of(entry("b"))
    for cut in range(1, len(second)):
        path.write_bytes(first + second[:cut])
        with Journal(str(path)) as journal:
            whole = cut == len(second) - 1  # only its end is missing
            assert len(journal) == (2 if whole else 1)
            assert journal.get("b") == (entry("b") if whole else None)
            assert journal.dropped == (0 if whole else cut)
            journal.add(entry("c"))
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines == [first, *([second] if whole else []), line_of(entry("c"))]


@pytest.mark.parametrize(
    "line", [b"{broken\n", b"[]\n", b'{"group": 1}\n', b"\n", b"[" * 100_000 + b"\n"]
)
def test_a_line_in_the_middle_that_is_no_entry_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    before = line_of(entry("a")) + line + line_of(entry("b"))
    path.write_bytes(before)
    with pytest.raises(Refusal, match=r"journal\.jsonl:2: no line of a journal"):
        Journal(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [b"{}", b"[]", b"null", b'{"group": 1}'])
def test_a_last_line_that_is_whole_and_no_entry_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line_of(entry("a")) + line)
    with pytest.raises(Refusal, match=r"journal\.jsonl:2: no line of a journal"):
        Journal(str(path))
    assert path.read_bytes() == line_of(entry("a")) + line


def test_a_full_disk_names_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(str(tmp_path / "journal.jsonl")) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*journal\.jsonl'"):
            journal.add(Entry("g", "d", {}))
        assert len(journal) == 0


def test_two_holders_of_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(str(tmp_path)):
        code = (
            "import sys\n"
            "from advlib.cli._grading_lock import locked\n"
            "with locked(sys.argv[1]): pass\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
        )
        assert ended.returncode == 1
        assert f"process {os.getpid()} is grading into this folder" in ended.stderr
    with locked(str(tmp_path)):  # and free again
        pass


def test_a_lock_whose_holder_was_killed_is_free(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from advlib.cli._grading_lock import locked\n"
        "with locked(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert ended.returncode == -9
    assert (tmp_path / "lock").read_text().strip().isdigit()
    with locked(str(tmp_path)):
        pass


def record(settings: dict[str, object], files: list[dict[str, object]]) -> dict[str, object]:
    return {"advlib": "0", "settings": settings, "inputs": files}


FILE = {"path": "a.jsonl", "bytes": 1, "sha256": "x"}


def test_the_same_grading_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = record({"mode": "rewards", "f_min": 0.5}, [FILE])
    assert begin(folder, first, restart=False) is False
    assert begin(folder, first | {"advlib": "1"}, restart=False) is True
    for changed, told in (
        (record({"mode": "advantages", "f_min": 0.5}, [FILE]), 'mode was "rewards" and is "adv'),
        (record({"mode": "rewards"}, [FILE]), "f_min was 0.5 and is null"),
        (record({"mode": "rewards", "f_min": 0.5}, [FILE | {"sha256": "y"}]), "a.jsonl has chang"),
        (record({"mode": "rewards", "f_min": 0.5}, [FILE | {"path": "b"}]), "a.jsonl is not read"),
        (record({"mode": "rewards", "f_min": 0.5}, []), "a.jsonl is not read any more"),
    ):
        with pytest.raises(Refusal, match="asked for something else") as refused:
            begin(folder, changed, restart=False)
        assert told in str(refused.value)
    two = [FILE, FILE | {"path": "b"}]
    assert begin(folder, record({}, two), restart=True) is False
    with pytest.raises(Refusal, match="another order"):
        begin(folder, record({}, two[::-1]), restart=False)


def test_what_a_killed_process_had_begun_is_removed(tmp_path: Path) -> None:
    begun = [tmp_path / f".{name}.0123abcd.tmp" for name in NAMES]
    mine = [tmp_path / ".notes.txt.0123abcd.tmp", tmp_path / ".run.json.tmp"]
    for path in begun:
        path.write_text("{")
    assert begin(str(tmp_path), record({}, []), restart=False) is False
    for path in (*begun, *mine):
        path.write_text("{")
    assert begin(str(tmp_path), record({}, []), restart=False) is True
    assert sorted(tmp_path.iterdir()) == sorted([*mine, tmp_path / "run.json"])


def test_a_restart_forgets_everything_but_what_is_not_its_own(tmp_path: Path) -> None:
    begin(str(tmp_path), record({"mode": "rewards"}, []), restart=False)
    for name in NAMES[1:]:
        (tmp_path / name).write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    begin(str(tmp_path), record({"mode": "advantages"}, []), restart=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["settings"] == {"mode": "advantages"}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "journal.jsonl", "summary.json"])
def test_a_folder_of_other_things_is_refused(tmp_path: Path, name: str, restart: bool) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(Refusal, match=f"holds {name} and no run.json"):
        begin(str(tmp_path), record({}, []), restart=restart)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"name": "mine"}', "{" * 100_000])
def test_a_run_json_that_is_no_record_is_refused(tmp_path: Path, text: str, restart: bool) -> None:
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(Refusal, match=r"run\.json: no record of a grading"):
        begin(str(tmp_path), record({}, []), restart=restart)
    assert (tmp_path / "summary.json").read_text() == "mine"


def test_inputs_are_told_with_their_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert inputs([str(path)]) == [{"path": str(path), "bytes": 3, "sha256": digest}]


def test_privileged_files_are_named_once_and_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a=b.txt"
    path.write_text("tests \u00e9")
    found = texts([f"tests={path}"], None)
    assert found.everywhere == {"tests": "tests \u00e9"}
    assert [(one["name"], one["bytes"]) for one in found.told] == [("tests", 8)]
    for option in ("tests", "=x", "tests="):
        with pytest.raises(Refusal, match="wanted NAME=FILE"):
            texts([option], None)
    with pytest.raises(Refusal, match="given twice"):
        texts([f"tests={path}", f"tests={path}"], None)
    path.write_bytes(b"\xff")
    with pytest.raises(Refusal, match="not UTF-8"):
        texts([f"tests={path}"], None)


class TestPrivilegedByTask:
    def read(self, tmp_path: Path, *lines: dict[str, object] | str) -> Texts:
        path = tmp_path / "private.jsonl"
        told = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(told) + "\n")
        return texts([], str(path))

    def test_a_group_gets_what_is_its_own_and_its_task_s(self, tmp_path: Path) -> None:
        found = self.read(
            tmp_path,
            {"task": "t1", "name": "tests", "text": "one"},
            "",
            {"task": "t2", "name": "tests", "text": "two"},
            {"group": "g1", "name": "patch", "text": "+1"},
        )
        assert found.of("g1", "t1") == {"tests": "one", "patch": "+1"}
        assert found.of("g2", "t2") == {"tests": "two"}
        assert found.of("g3", "t3") == {}
        assert list(found.unused(["g1"], ["t1", "t2"])) == []
        (told,) = found.unused(["g1"], ["t1"])
        assert "1 task not in these files: t2" in told

    def test_one_name_for_two_texts_is_refused(self, tmp_path: Path) -> None:
        found = self.read(
            tmp_path,
            {"task": "t", "name": "tests", "text": "one"},
            {"group": "g", "name": "tests", "text": "two"},
        )
        with pytest.raises(Refusal, match="group g: two privileged texts named tests"):
            found.of("g", "t")
        with pytest.raises(Refusal, match=r"private\.jsonl:2: task t has two texts named tests"):
            self.read(tmp_path, *[{"task": "t", "name": "tests", "text": "x"}] * 2)

    @pytest.mark.parametrize(
        "line",
        [
            "secret words",
            {"name": "n", "text": "secret words"},
            {"name": "n", "text": "secret words", "task": "t", "group": "g"},
            {"name": "n", "text": "secret words", "task": 1},
            {"name": "n", "text": "secret words", "tsak": "t"},
            "[" * 5000,
        ],
    )
    def test_other_lines_are_refused_and_not_quoted(self, tmp_path: Path, line: object) -> None:
        with pytest.raises(Refusal, match=r"private\.jsonl:1: wanted an object") as refusal:
            self.read(tmp_path, line)  # type: ignore[arg-type]
        assert "secret" not in str(refusal.value)
