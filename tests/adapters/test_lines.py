"""Files as they are found: torn, spliced, compressed, with odd bytes and odd numbers."""

from __future__ import annotations

import gzip
import json
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from advlib import adapters
from advlib.adapters import schema
from tests.adapters.made import GOOD, legacy, nemo, read, reported, rows, write_lines

SAMPLES = Path(str(resources.files("advlib.samples")))


def prompts(path: Path, **options: Any) -> list[str]:
    return [row["prompt"] for row in rows(path, **options)]


def made(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    return path


def test_only_a_newline_ends_a_record(tmp_path: Path) -> None:
    """BR-105."""
    text = "a\u2028b\u0085c\u2029d\x0be\x0c"
    first = json.dumps(legacy(prompt=text), ensure_ascii=False)
    path = made(tmp_path, f"{first}\n{GOOD}\n".encode())
    assert prompts(path) == [text, "p"]


def test_record_written_onto_a_fragment(tmp_path: Path) -> None:
    """BR-107: named by its line, and what follows is still read."""
    path = write_lines(tmp_path / "r.jsonl", GOOD, '{"reward":0,"te{"reward":1}', GOOD + GOOD, GOOD)
    with pytest.warns(adapters.ReadWarning, match=r"two_records_on_a_line \(.*; lines 2, 3\)"):
        table = adapters.read(path)
    assert table.column("source_line").to_pylist() == [1, 4]
    tally = adapters.report(table).files[0].reported["two_records_on_a_line"]
    assert (tally.count, tally.lines) == (2, [2, 3])


@pytest.mark.parametrize(
    ("literal", "reason"),
    [
        ("NaN", schema.NAN),
        ("Infinity", schema.INFINITE),
        ("-Infinity", schema.INFINITE),
        ("1e999", schema.INFINITE),
        ("1" * 400, schema.INFINITE),
        ("-" + "1" * 5000, schema.INFINITE),
        ("null", schema.NULL),
        ('"1.0"', schema.NOT_A_NUMBER),
        ('""', schema.NOT_A_NUMBER),
        ("[1.0]", schema.NOT_A_NUMBER),
    ],
)
def test_reward_that_is_no_measurement(tmp_path: Path, literal: str, reason: str) -> None:
    """BR-108, BR-31: invalid with its own reason, null in the table, never a zero."""
    line = f'{{"example_id":0,"prompt":"p","reward":{literal}}}'
    row = rows(write_lines(tmp_path / "r.jsonl", line))[0]
    assert (row["valid"], row["invalid_reason"], row["reward"]) == (False, reason, None)


@pytest.mark.parametrize(
    ("literal", "number"),
    [("true", 1.0), ("false", 0.0), ("-0.0", 0.0), ("7", 7.0), ("1e-320", 1e-320), ("2.5e0", 2.5)],
)
def test_reward_that_is_a_number(tmp_path: Path, literal: str, number: float) -> None:
    line = f'{{"example_id":0,"prompt":"p","reward":{literal}}}'
    row = rows(write_lines(tmp_path / "r.jsonl", line))[0]
    assert (row["valid"], row["reward"]) == (True, number)


def test_literals_beyond_json_are_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", GOOD, '{"example_id":1,"prompt":"p","reward":NaN}')
    with pytest.warns(adapters.ReadWarning, match="1 x non_finite_literal .*line 2"):
        adapters.read(path)


@pytest.mark.parametrize("field", ["prompt", "completion", "answer"])
def test_half_a_surrogate_pair(tmp_path: Path, field: str) -> None:
    r"""BR-112: read, hashed and written again."""
    line = json.dumps(legacy(**{field: "x"})).replace('"x"', r'"a\ud835 b"')
    table = read(write_lines(tmp_path / "r.jsonl", line, GOOD))
    assert table.num_rows == 2
    if field == "prompt":
        assert table.column("prompt").to_pylist()[0] == "a\ufffd b"
        assert adapters.report(table).notes["lone_surrogate"] == 1
    adapters.write(table, tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl").equals(table)


def test_whole_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    line = json.dumps(legacy(prompt="\U0001d435"))
    assert r"\ud835" in line
    assert prompts(write_lines(tmp_path / "r.jsonl", line)) == ["\U0001d435"]


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    bad = json.dumps(legacy(prompt="x")).encode().replace(b'"x"', b'"a\xff\xc3("')
    table = read(write_lines(tmp_path / "r.jsonl", GOOD, bad, GOOD))
    assert table.column("prompt").to_pylist()[1] == "a\ufffd\ufffd("
    assert adapters.report(table).files[0].notes["bad_utf8"].lines == [2]


@pytest.mark.parametrize("odd", [b"\xff\xc3(", rb"\ud835"])
def test_odd_text_that_the_table_does_not_take(tmp_path: Path, odd: bytes) -> None:
    """It is skipped unseen, be it a value or a name, and harms nothing."""
    row = json.dumps(legacy(completion="x", y=2)).encode()
    for bad in (row.replace(b'"x"', b'"%b"' % odd), row.replace(b'"y"', b'"%b"' % odd)):
        table = read(write_lines(tmp_path / "r.jsonl", GOOD, bad, GOOD))
        assert table.column("reward").to_pylist() == [1.0, 1.0, 1.0]


def test_very_long_line(tmp_path: Path) -> None:
    """BR-113."""
    big = json.dumps(legacy(1, prompt="q", completion="x" * 50_000_000))
    path = write_lines(tmp_path / "r.jsonl", GOOD, big, GOOD)
    table = read(path)
    assert table.column("source_line").to_pylist() == [1, 2, 3]
    assert table.column("prompt").to_pylist() == ["p", "q", "p"]


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_lines_across_blocks(tmp_path: Path, size: int) -> None:
    """Every line keeps its bytes wherever a block of the reader ends."""
    wanted = [f"{i}:" + "y" * (i * 7919 % 60_000 + size) for i in range(200)]
    path = write_lines(tmp_path / "r.jsonl", *(legacy(i, prompt=p) for i, p in enumerate(wanted)))
    assert prompts(path) == wanted


def test_byte_order_mark_carriage_returns_and_blank_lines(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n\r\n  \t \n" + GOOD.encode() + b"\r\n\n"
    table = read(made(tmp_path, content))
    one = adapters.report(table).files[0]
    assert (one.lines, one.blank_lines, one.rows) == (5, 3, 2)
    assert table.column("source_line").to_pylist() == [1, 4]


def test_last_line_needs_no_newline(tmp_path: Path) -> None:
    table = read(made(tmp_path, f"{GOOD}\n{GOOD}".encode()))
    assert table.num_rows == 2
    assert reported(table) == {}


@pytest.mark.parametrize("cut", [1, 5, 20, 30, len(GOOD) - 1])
def test_torn_last_line(tmp_path: Path, cut: int) -> None:
    table = read(made(tmp_path, f"{GOOD}\n{GOOD[:cut]}".encode()))
    assert table.num_rows == 1
    assert reported(table) == {"torn_last_line": 1}


def test_torn_after_a_nested_object_is_torn(tmp_path: Path) -> None:
    table = read(made(tmp_path, f'{GOOD}\n{{"example_id":1,"metrics":{{"a":1}}'.encode()))
    assert reported(table) == {"torn_last_line": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("<PLACEHOLDER ROW>", "malformed"),
        ("[1, 2]", "not_an_object"),
        ('"text"', "not_an_object"),
        ("3", "not_an_object"),
        ("null", "not_an_object"),
        ("{}", "unrecognised"),
        ('{"idx":3,"error":"timeout"}', "unrecognised"),  # BR-115
        ('{"a":tru}', "malformed"),
        ('{"a":"x\x01y"}', "malformed"),
        ("{'a': 1}", "malformed"),
        ("\x00\x00\x00", "malformed"),
        ('{"prompt":' + "[" * 200_000 + "]" * 200_000 + ',"reward":1}', "malformed"),
    ],
    ids=lambda text: text[:20],
)
def test_line_that_is_no_row(tmp_path: Path, line: str, reason: str) -> None:
    table = read(write_lines(tmp_path / "r.jsonl", GOOD, line, GOOD))
    assert table.num_rows == 2
    assert reported(table) == {reason: 1}


def test_last_of_two_equal_names_counts(tmp_path: Path) -> None:
    line = '{"example_id":0,"prompt":"p","reward":0,"reward":1}'
    assert rows(write_lines(tmp_path / "r.jsonl", line))[0]["reward"] == 1.0


def test_integers_beyond_64_bits(tmp_path: Path) -> None:
    line = json.dumps(legacy(2**70, token_usage={"output_tokens": 2**70}, step=-(2**63) - 1))
    row = rows(write_lines(tmp_path / "r.jsonl", line))[0]
    assert row["task"].startswith(f"{2**70}:")
    assert (row["response_length"], row["step"]) == (None, None)


@pytest.mark.parametrize("digits", [310, 399, 4000, 4500])
def test_integers_beyond_every_number(tmp_path: Path, digits: int) -> None:
    big = "9" * digits
    line = '{"example_id":0,"prompt":"p","reward":BIG,"step":BIG,"metrics":{"m":BIG}}'
    row = rows(write_lines(tmp_path / "r.jsonl", line.replace("BIG", big)))[0]
    assert (row["invalid_reason"], row["step"]) == (schema.INFINITE, None)
    assert row["reward_components"] == [("m", None)]


@pytest.mark.parametrize("name", ["prompt", "info", "reward", "metrics", "error", "extra"])
def test_nesting_near_the_limit(tmp_path: Path, name: str) -> None:
    """Whatever depth each decoder stops at, nothing but a row or a reported line comes out."""
    lines = [GOOD]
    for depth in (50, 150, *range(300, 1100, 50), 3000):
        deep = "[" * depth + "]" * depth
        content = '[{"content":' * depth + "1" + "}]" * depth
        row = legacy(depth, **{name: 0})
        lines += [
            json.dumps(row).replace(f'"{name}": 0', f'"{name}": {x}') for x in (deep, content)
        ]
    table = read(write_lines(tmp_path / "r.jsonl", *lines))
    assert table.num_rows >= 1
    assert set(reported(table)) <= {"malformed"}
    own = json.dumps(table.slice(0, 1).to_pylist()[0] | {"reward_components": None})
    made = [
        own.replace('"valid"', f'"{name}_x": {"[" * n}{"]" * n}, "valid"').replace(":1", f":{n}")
        for n in range(100, 1000, 60)
    ]
    read(write_lines(tmp_path / "own.jsonl", *made))


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstd)])
def test_compressed(tmp_path: Path, suffix: str, pack: Any) -> None:
    text = "".join(json.dumps(legacy(i, prompt=f"{i}" * 999)) + "\n" for i in range(50)).encode()
    path = tmp_path / f"r.jsonl{suffix}"
    path.write_bytes(pack(text[:9000]) + pack(text[9000:]))  # two members, one stream of lines
    assert prompts(path) == [f"{i}" * 999 for i in range(50)]
    unnamed = tmp_path / "r.jsonl"  # told by its content
    unnamed.write_bytes(path.read_bytes())
    assert read(unnamed).num_rows == 50


def test_compressed_stream_of_a_run_that_died(tmp_path: Path) -> None:
    lines = [json.dumps(legacy(i, prompt=f"{i * 7919 % 1013}")) for i in range(20_000)]
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode())[:-20_000])
    table = read(path)
    assert 1000 < table.num_rows < 20_000
    assert adapters.report(table).notes["compressed_stream_cut"] == 1


def test_damaged_compressed_stream(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GOOD.encode() * 1000))
    packed[20:40] = b"\x00" * 20
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(packed)
    with pytest.raises(adapters.FormatError, match=r"r\.jsonl\.gz: "):
        read(path)


def test_one_warning_a_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", GOOD, *["{}"] * 9, "[]", "x", GOOD)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapters.read(path)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"{path}: 2 rows read" in text
    assert "9 x unrecognised" in text
    assert "lines 2, 3, 4, 5, 6, ..." in text


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rows_ = [legacy(i, prompt="z" * 5000) for i in range(500)]
        write_lines(tmp_path / f"{name}.jsonl", *rows_)
    seen: list[tuple[int, int, str]] = []
    read(tmp_path, progress=lambda *step: seen.append(step))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert seen[-1] == (total, total, str(tmp_path / "b.jsonl"))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert len(done) > 6


@pytest.mark.parametrize(
    "name",
    [
        "arithmetic_results.jsonl",
        "code_repair_traces.jsonl",
        "orchard_rollouts.jsonl",
        "orchard_rollouts_failures.jsonl",
    ],
)
def test_a_line_that_was_repaired_is_the_same_row(tmp_path: Path, name: str) -> None:
    """NaN in a field that nobody asked for changes no other, its task and its failures included."""
    lines = (SAMPLES / name).read_text(encoding="utf-8").splitlines()
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    before = rows(path, details=True)
    path.write_text("\n".join('{"odd": NaN, ' + line[1:] for line in lines) + "\n", "utf-8")
    assert rows(path, details=True) == before


def test_of_a_repaired_failure_the_mask_is_kept(tmp_path: Path) -> None:
    failed = nemo(0, 0, 0.0, _ng_failure_class="judge_failed", score=float("nan"))
    left_out = nemo(0, 1, 0.0, _ng_no_persist=True, score=float("nan"))
    got = rows(write_lines(tmp_path / "r.jsonl", failed, left_out, nemo(0, 2, 1.0)))
    assert [(row["task"], row["valid"]) for row in got] == [("0", False), ("0", False), ("0", True)]
    assert [row["failure_kind"] for row in got] == ["judge_failed", None, None]
