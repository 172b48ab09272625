"""Which files a path stands for, and what is said when there is nothing to read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from advlib import adapters
from advlib.adapters._files import find
from tests.adapters.made import GOOD, episode, legacy, read, reported, trace, write_lines


def test_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b/2.jsonl", "b/1.jsonl", "a/9.jsonl", "z.jsonl", ".hidden.jsonl", ".git/x.jsonl"):
        write_lines(tmp_path / name, GOOD)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    (tmp_path / "notes.txt").write_text("no rollouts")
    files = [f.path for f in adapters.report(read(tmp_path)).files]
    wanted = ["c.jsonl.gz", "z.jsonl", "a/9.jsonl", "b/1.jsonl", "b/2.jsonl"]
    assert files == [str(tmp_path / name) for name in wanted]


def test_a_grading_in_the_folder(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", GOOD)
    for name in ("graded/run.json", "graded/journal.jsonl", "mine/journal.jsonl"):
        write_lines(tmp_path / name, GOOD)
    account = adapters.report(read(tmp_path))
    wanted = [str(tmp_path / name) for name in ("a.jsonl", "mine/journal.jsonl")]
    assert [f.path for f in account.files] == wanted
    assert account.ignored == {str(tmp_path / "graded/journal.jsonl"): "the journal of a grading"}
    with pytest.raises(adapters.FormatError, match=r"graded/journal\.jsonl: the journal of a grad"):
        read(tmp_path / "graded")


def test_a_folder_that_is_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", GOOD)
    out = tmp_path / "out"
    mine = write_lines(out / "b.jsonl", GOOD)
    near = write_lines(tmp_path / "outer/c.jsonl", GOOD)
    for paths in (tmp_path, str(tmp_path / "**/*.jsonl"), [tmp_path / "a.jsonl", mine, near]):
        found = find(paths, leave_out=out)
        assert found.files == [str(tmp_path / "a.jsonl"), str(near)]
        assert found.ignored == {str(mine): "in the folder that is written to"}
    with pytest.raises(adapters.FormatError, match=r"b\.jsonl: in the folder that is written to"):
        find(mine, leave_out=out)


def test_pattern_and_list(tmp_path: Path) -> None:
    a, b, c = (write_lines(tmp_path / f"{n}.jsonl", GOOD) for n in "abc")
    assert read(str(tmp_path / "[ab].jsonl")).num_rows == 2
    assert read([c, str(a)]).column("source_file").to_pylist() == [str(c), str(a)]
    assert read([a, tmp_path, b]).num_rows == 3  # each file once


def test_name_with_pattern_characters_is_a_name(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run[1].jsonl", GOOD)
    assert read(path).num_rows == 1


@pytest.mark.parametrize("name", ["gone.jsonl", "gone/*.jsonl"])
def test_nothing_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        adapters.read(tmp_path / name)


def test_folder_without_rollouts(tmp_path: Path) -> None:
    with pytest.raises(adapters.FormatError, match=r"no \*\.jsonl"):
        adapters.read(tmp_path)


def test_no_path_at_all() -> None:
    with pytest.raises(adapters.FormatError, match="no path"):
        adapters.read([])


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \t\r\n", b"\xef\xbb\xbf"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    for look in (adapters.read, adapters.sniff):
        with pytest.raises(adapters.FormatError, match=r"r\.jsonl: no rollouts: the file is empty"):
            look(path)


def test_unknown_format_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", GOOD)
    with pytest.raises(adapters.FormatError, match=r"format='verl': the formats are 'auto'"):
        adapters.read(path, "verl")


def test_no_line_of_the_format_asked_for(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", {"input": "a", "score": 1.0})
    with pytest.raises(adapters.FormatError, match=r"r\.jsonl:1: .*looked for .*`traces`.*1 x unr"):
        adapters.read(path, "prime_rl")


def test_format_is_told_by_the_first_record_that_is_one(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", "# made by a script", "{}", "[]", episode(trace("a")))
    table = read(path)
    assert (table.num_rows, adapters.sniff(path)) == (1, "prime_rl")
    assert reported(table) == {"malformed": 1, "unrecognised": 1, "not_an_object": 1}


def test_rows_of_two_formats_in_one_file(tmp_path: Path) -> None:
    table = read(write_lines(tmp_path / "r.jsonl", legacy(), episode(trace("a")), legacy()))
    assert table.num_rows == 2
    assert reported(table) == {"unrecognised": 1}


def test_formats_side_by_side(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", legacy())
    write_lines(tmp_path / "b.jsonl", episode(trace("a")))
    write_lines(tmp_path / "c.jsonl", {"no": "rollouts"})
    table = read(tmp_path)
    assert table.column("format").to_pylist() == ["verifiers", "prime_rl"]
    assert [f.format for f in adapters.report(table).files] == ["verifiers", "prime_rl", None]
    with pytest.raises(adapters.FormatError, match=r"c\.jsonl:1"):
        read([tmp_path / "a.jsonl", tmp_path / "c.jsonl"])


def test_companions_are_of_the_files_own_format(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "results.jsonl", legacy())
    write_lines(tmp_path / "annotations" / "a.jsonl", {"trace_id": "a", "info": {}})
    for format in ("auto", "verifiers"):
        assert read(path, format).num_rows == 1


def test_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(adapters.FormatError, match=r"pipe\.jsonl: a pipe or device"):
        adapters.read(tmp_path / "pipe.jsonl")


def test_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.jsonl")
    try:
        Path(path).write_text(GOOD)
    except OSError:
        return  # a file system that has no such names
    with pytest.raises(adapters.FormatError, match="name is not UTF-8"):
        adapters.read(path)
