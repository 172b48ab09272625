"""Damaged files: a clear refusal or a table whose account closes, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advlib import adapters
from tests.adapters.made import episode, legacy, nemo, read, trace, write_lines

SAMPLES: dict[str, list[dict]] = {
    "verifiers": [
        legacy(i // 2, i / 2, [{"role": "user", "content": f"p{i // 2}"}], metrics={"m": 1.0})
        for i in range(6)
    ],
    "prime_rl": [
        episode(trace(f"t{i}", info={"gar": {"tier": 0, "hack": "none"}}), trace(f"u{i}"))
        for i in range(3)
    ]
    + [{"version": 1, "trace_id": "t1", "info": {"advantage": 0.5}, "branches": [{"index": 0}]}],
    "nemo_gym": [nemo(i // 2, i % 2, reward_components={"a": 0.5}) for i in range(6)],
}
ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**70, -(2**70), float("nan"), float("inf"), "", "x", "\ud800",
    [], {}, [None], [[]], {"a": None}, [{"a": 1}], "\u2028", "\x00", [1, "a", None, {}],
]  # fmt: skip


def truncated(line: bytes, rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line))]


def spliced(line: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(line))
    return line[:at] + line[rng.randrange(len(line)) :]


def doubled(line: bytes, rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line))] + line


def flipped(line: bytes, rng: random.Random) -> bytes:
    made = bytearray(line)
    for _ in range(rng.randint(1, 8)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def stuffed(line: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(line))
    bad = [b"\x00", b"\n", b"\r", b"\x1b", b"\xff", b"\xe2\x80\xa8", b"\\ud83d", b"NaN", b"\xc0"]
    return line[:at] + rng.choice(bad) + line[at:]


def changed(line: bytes, rng: random.Random) -> bytes:
    """Somewhere in the record, a name goes or a value becomes another kind of value."""
    record = json.loads(line)
    for _ in range(rng.randint(1, 3)):
        parent: Any = record
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                break
            key = rng.choice(keys)
            child = parent[key]
            if isinstance(child, dict | list) and child and rng.random() < 0.7:
                parent = child
                continue
            if isinstance(parent, dict) and rng.random() < 0.3:
                del parent[key]
            else:
                parent[key] = rng.choice(ODD_VALUES)
            break
    return json.dumps(record).encode()


MUTATIONS = (truncated, spliced, doubled, flipped, stuffed, changed, changed)


def survives(path: Path, format: str) -> bool:
    """Whether it can be read; anything but a table or a refusal is raised."""
    try:
        table = read(path, format, reward_key="a")  # a dict may turn up where the reward was
    except adapters.FormatError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert path.name in refusal
        return False
    account = adapters.report(table)
    assert all(one.records >= one.lines - one.blank_lines for one in account.files)
    return True


def attack(lines: list[bytes], path: Path, format: str, rng: random.Random, rounds: int) -> int:
    read_rounds = 0
    for _ in range(rounds):
        made = list(lines)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(made))
            mutate: Callable[[bytes, random.Random], bytes] = rng.choice(MUTATIONS)
            try:
                made[at] = mutate(made[at], rng) or b"{"
            except ValueError:  # already too damaged for this mutation
                continue
        content = b"\n".join(made) + (b"\n" if rng.random() < 0.5 else b"")
        path.write_bytes(content)
        read_rounds += survives(path, format)
    return read_rounds


@pytest.mark.parametrize("format", SAMPLES)
@pytest.mark.parametrize("seed", range(4))
def test_own_lines(tmp_path: Path, format: str, seed: int) -> None:
    rng = random.Random(f"{format} {seed}")
    lines = [json.dumps(row).encode() for row in SAMPLES[format]]
    told = "auto" if seed % 2 else format
    assert attack(lines, tmp_path / "r.jsonl", told, rng, 60) > 20


@pytest.mark.parametrize("seed", range(2))
def test_own_tables(tmp_path: Path, seed: int) -> None:
    made = read(write_lines(tmp_path / "in.jsonl", *SAMPLES["prime_rl"]))
    adapters.write(made, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert attack(lines, tmp_path / "r.jsonl", "auto", random.Random(seed), 60) > 20


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_compressed_bytes(tmp_path: Path, pack: str) -> None:
    import pyarrow as pa

    rng = random.Random(pack)
    content = b"".join(json.dumps(row).encode() + b"\n" for row in SAMPLES["nemo_gym"] * 50)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, pack) as stream:
        stream.write(content)
    packed = sink.getvalue().to_pybytes()
    path = tmp_path / "r.jsonl"
    for _ in range(60):
        path.write_bytes(rng.choice((truncated, flipped, spliced))(packed, rng))
        survives(path, "auto")


def test_parquet_bytes(tmp_path: Path) -> None:
    made = read(write_lines(tmp_path / "in.jsonl", *SAMPLES["nemo_gym"]))
    adapters.write(made, tmp_path / "out.parquet")
    packed = (tmp_path / "out.parquet").read_bytes()
    rng = random.Random(5)
    path = tmp_path / "r.parquet"
    for _ in range(60):
        path.write_bytes(rng.choice((truncated, flipped, spliced))(packed, rng))
        survives(path, "auto")


def test_noise(tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "r.jsonl"
    for size in (1, 10, 1000, 100_000):
        for _ in range(10):
            path.write_bytes(rng.randbytes(size))
            assert not survives(path, "auto")


def test_real_lines(tmp_path: Path, shared_rollouts: Path) -> None:
    rng = random.Random(11)
    for format in ("verifiers", "nemo_gym"):
        for file in sorted((shared_rollouts / format).glob("*.jsonl")):
            lines = file.read_bytes().split(b"\n")[:6]
            if all(len(line) < 60_000 for line in lines):
                attack([line for line in lines if line], tmp_path / "r.jsonl", "auto", rng, 12)
