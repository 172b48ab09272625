"""Tables out, and back as they were."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advlib import adapters
from advlib.adapters import schema
from tests.adapters.made import (
    GOOD,
    episode,
    legacy,
    nemo,
    read,
    reported,
    rows,
    trace,
    write_lines,
)

SUFFIXES = [".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst"]


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    """Rows of every format, valid and not, with every kind of column."""
    gar = {"tier": 0, "hack": "none", "margins": ["slight"]}
    write_lines(
        tmp_path / "in" / "traces.jsonl",
        episode(trace("a", info={"gar": gar}), trace("b", {"x": None, "y": {"score": 0.1}})),
        episode(id="e2", errors=[{"type": "E", "message": "\u2028 \U0001d435"}]),
    )
    write_lines(tmp_path / "in" / "rollouts.jsonl", nemo(0, 0), nemo(0, 1, mask_sample=True))
    write_lines(tmp_path / "in" / "results.jsonl", legacy(0, 1 / 3), legacy(1, None, "q"))
    return read(tmp_path / "in")


@pytest.mark.parametrize("suffix", SUFFIXES)
class TestRoundTrip:
    def test_same_table(self, tmp_path: Path, table: pa.Table, suffix: str) -> None:
        path = tmp_path / f"out{suffix}"
        adapters.write(table, path)
        back = read(path)
        assert back.equals(table)
        assert back.schema.equals(table.schema)
        assert adapters.sniff(path) == "advlib"
        one = adapters.report(back).files[0]
        assert (one.format, one.lines, one.rows) == ("advlib", 7, 7)
        assert reported(back) == {}

    def test_other_columns_too(self, tmp_path: Path, table: pa.Table, suffix: str) -> None:
        more = {
            "baseline": pa.array([0.5, None, 1.0, 2.0, -0.0, None, 1e-300]),
            "estimator": pa.array(["grpo"] * 7),
            "count": pa.array(range(7), pa.int64()),
            "flags": pa.array([[True], [], None, [False], [], [], []]),
        }
        for name, column in more.items():
            table = table.append_column(name, column)
        path = tmp_path / f"out{suffix}"
        adapters.write(table, path)
        assert read(path).equals(table)

    def test_identity_survives(self, tmp_path: Path, table: pa.Table, suffix: str) -> None:
        path = tmp_path / f"out{suffix}"
        adapters.write(table, path)
        keys = ["rollout_id", "source_file", "source_line", "format"]
        assert read(path).select(keys).equals(table.select(keys))

    def test_older_file_is_replaced(self, tmp_path: Path, table: pa.Table, suffix: str) -> None:
        path = tmp_path / f"out{suffix}"
        path.write_text("old")
        adapters.write(table, path)
        assert read(path).num_rows == 7
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in", path.name]

    def test_empty_table(self, tmp_path: Path, table: pa.Table, suffix: str) -> None:
        path = tmp_path / f"out{suffix}"
        adapters.write(table.slice(0, 0), path)
        with pytest.raises(adapters.FormatError, match=r"out.* no rollouts"):
            adapters.read(path)

    def test_an_error_leaves_what_was_there(
        self, tmp_path: Path, table: pa.Table, suffix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / f"out{suffix}"
        path.write_text("old")

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            adapters.write(table, path)
        assert path.read_text() == "old"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in", path.name]


def test_permissions_are_the_usual_ones(tmp_path: Path, table: pa.Table) -> None:
    (tmp_path / "plain").write_text("")
    adapters.write(table, tmp_path / "out.jsonl")
    usual, got = (stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("plain", "out.jsonl"))
    assert got == usual


def test_rows_that_cannot_be_encoded_leave_nothing(tmp_path: Path, table: pa.Table) -> None:
    bad = table.append_column("odd", pa.array([b"\x00"] * 6 + [None]))
    bad = bad.set_column(0, "rollout_id", pa.array([2j.real] * 7))
    adapters.write(bad, tmp_path / "out.jsonl")  # bytes become base64
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(FileNotFoundError):
        adapters.write(table, tmp_path / "gone" / "out.jsonl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_interrupted_in_the_middle_of_a_long_write(tmp_path: Path) -> None:
    """A real Ctrl-C, while the temporary file is growing."""
    program = textwrap.dedent(
        """
        import sys
        import pyarrow as pa
        from advlib import adapters
        n = 3_000_000
        table = pa.table({"rollout_id": pa.array(range(n)), "x": pa.array(["y" * 20] * n)})
        print("ready", flush=True)
        adapters.write(table, sys.argv[1])
        """
    )
    out = tmp_path / "out.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    while process.poll() is None and not any(p.stat().st_size for p in tmp_path.iterdir()):
        pass
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0, told.decode()
    assert list(tmp_path.iterdir()) == []


def test_json_lines_hold_null_never_nan(tmp_path: Path, table: pa.Table) -> None:
    """BR-108."""
    odd = pa.array([math.nan, math.inf, -math.inf, 1.0, 0.0, None, 2.0])
    lists = pa.array([[math.nan]] * 7)
    adapters.write(table.append_column("odd", odd).append_column("l", lists), tmp_path / "o.jsonl")
    text = (tmp_path / "o.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    got = [json.loads(line)["odd"] for line in text.splitlines()]
    assert got == [None, None, None, 1.0, 0.0, None, 2.0]


def test_name_that_says_nothing(tmp_path: Path, table: pa.Table) -> None:
    with pytest.raises(ValueError, match=r"out\.csv: cannot tell what to write: .*\.parquet"):
        adapters.write(table, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_parquet_keeps_the_account_and_other_metadata(tmp_path: Path, table: pa.Table) -> None:
    told = {**table.schema.metadata, b"estimator": b"grpo"}
    adapters.write(table.replace_schema_metadata(told), tmp_path / "out.parquet")
    plain = pq.read_table(tmp_path / "out.parquet")
    assert adapters.report(plain) == adapters.report(table)
    assert read(tmp_path / "out.parquet").schema.metadata[b"estimator"] == b"grpo"


def test_no_account_no_report() -> None:
    with pytest.raises(ValueError, match=r"advlib\.read"):
        adapters.report(pa.table({"a": [1]}))


def test_an_account_that_does_not_close_is_an_error(table: pa.Table) -> None:
    account = adapters.report(table)
    account.check()
    account.files[0].rows += 1
    with pytest.raises(ValueError, match=r"records, but \d+ rows"):
        account.check()


class TestOwnLines:
    def line(self, tmp_path: Path, **changes: Any) -> dict:
        adapters.write(read(write_lines(tmp_path / "i.jsonl", legacy())), tmp_path / "o.jsonl")
        return {**json.loads((tmp_path / "o.jsonl").read_text()), **changes}

    @pytest.mark.parametrize(
        "change",
        [{"valid": "yes"}, {"source_line": 2**63}, {"tier": 2**31}, {"reward": "1"},
         {"reward_components": [1]}, {"margins": {}}, {"format": None}, {"step": 1.5}],
        ids=str,
    )  # fmt: skip
    def test_value_of_another_type(self, tmp_path: Path, change: dict) -> None:
        line = self.line(tmp_path)
        path = write_lines(tmp_path / "r.jsonl", line, {**line, "rollout_id": "2", **change})
        table = read(path)
        assert table.num_rows == 1
        assert reported(table) == {"wrong_type": 1}

    def test_fields_that_were_taken_out_are_null(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        short = {name: line[name] for name in (f.name for f in adapters.SCHEMA if not f.nullable)}
        got = rows(write_lines(tmp_path / "r.jsonl", {**short, "reward": 2}))[0]
        assert (got["reward"], got["prompt"]) == (2.0, None)

    def test_a_valid_row_has_a_reward(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "r.jsonl", self.line(tmp_path, reward=None))
        assert rows(path)[0]["invalid_reason"] == schema.NULL

    def test_columns_that_only_some_rows_have(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        made = [{**line, "rollout_id": str(i), **({"z": i} if i % 2 else {})} for i in range(4)]
        assert read(write_lines(tmp_path / "r.jsonl", *made)).column("z").to_pylist() == [
            None, 1, None, 3,
        ]  # fmt: skip

    def test_column_of_mixed_types_is_kept_as_text(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        made = [{**line, "rollout_id": str(i), "z": z} for i, z in enumerate([1, "a", [2]])]
        got = read(write_lines(tmp_path / "r.jsonl", *made)).column("z").to_pylist()
        assert got == ["1", '"a"', "[2]"]

    def test_files_with_different_columns_together(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        one = write_lines(tmp_path / "a.jsonl", {**line, "rollout_id": "1", "y": 1.5})
        two = write_lines(tmp_path / "b.jsonl", {**line, "rollout_id": "2", "z": "t"})
        table = read([one, two])
        assert table.column("y").to_pylist() == [1.5, None]
        assert table.column("z").to_pylist() == [None, "t"]

    def test_files_that_disagree_on_a_column(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        one = write_lines(tmp_path / "a.jsonl", {**line, "rollout_id": "1", "z": 1})
        two = write_lines(tmp_path / "b.jsonl", {**line, "rollout_id": "2", "z": "t"})
        with pytest.raises(adapters.FormatError, match=r"one name and different types.* z "):
            read([one, two])

    def test_same_rows_twice(self, tmp_path: Path) -> None:
        line = self.line(tmp_path)
        adapters.write(read(write_lines(tmp_path / "a.jsonl", line)), tmp_path / "b.parquet")
        table = read([tmp_path / "a.jsonl", tmp_path / "b.parquet"])
        assert table.num_rows == 1
        assert reported(table) == {"duplicate_id": 1}


class TestParquet:
    def test_other_tables_are_refused(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"step": [1], "reward": [1.0]}), tmp_path / "x.parquet")
        for look in (adapters.read, adapters.sniff):
            with pytest.raises(adapters.FormatError, match=r"not a table of advlib.*'rollout_id'"):
                look(tmp_path / "x.parquet")

    def test_damaged_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.parquet").write_bytes(b"PAR1" + b"\x00" * 100)
        with pytest.raises(adapters.FormatError, match=r"not a readable Parquet file"):
            adapters.read(tmp_path / "x.parquet")

    def test_wrong_column(self, tmp_path: Path, table: pa.Table) -> None:
        at = table.schema.get_field_index("reward")
        bad = table.set_column(at, "reward", pa.array(["x"] * table.num_rows))
        adapters.write(bad, tmp_path / "x.parquet")
        with pytest.raises(adapters.FormatError, match=r"column 'reward' is string"):
            adapters.read(tmp_path / "x.parquet")

    def test_null_where_none_may_be(self, tmp_path: Path, table: pa.Table) -> None:
        at = table.schema.get_field_index("group")
        bad = table.set_column(at, "group", pa.array([None] * table.num_rows, pa.string()))
        adapters.write(bad, tmp_path / "x.parquet")
        with pytest.raises(adapters.FormatError, match=r"column 'group' holds 7 nulls"):
            adapters.read(tmp_path / "x.parquet")

    def test_columns_left_out_are_null(self, tmp_path: Path, table: pa.Table) -> None:
        adapters.write(table.drop_columns(["prompt", "tier"]), tmp_path / "x.parquet")
        back = read(tmp_path / "x.parquet")
        assert back.column_names == table.column_names
        assert back.column("prompt").null_count == table.num_rows

    def test_another_format_is_refused(self, tmp_path: Path, table: pa.Table) -> None:
        adapters.write(table, tmp_path / "x.parquet")
        with pytest.raises(adapters.FormatError, match="Parquet"):
            adapters.read(tmp_path / "x.parquet", "verifiers")


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "scored.jsonl"
    with pytest.raises(OSError, match="No space left") as caught:
        adapters.write(read(write_lines(tmp_path / "a.jsonl", GOOD)), path)
    assert caught.value.filename == str(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl"]
