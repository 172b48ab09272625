"""Reading rollout files: megabytes a second and peak memory, each reader in its own process.

    python benchmarks/bench_read.py [--json PATH] [--megabytes 200] [--peers-python PATH] [--tiny]

Two files are made in a temporary folder and read from the page cache: legacy verifiers results and
NeMo Gym rollouts, about 8 KB a line, of words with some characters outside ASCII. Every reader must
find the same number of rows and the same sum of rewards. Memory is the peak above what the imports
took, and is also measured on a file of twice the size: what grows is the result, or the appetite.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TEXT = """
the of and to in we is that for it as with on by this be are let so then from number value sum
answer because therefore step compute find equals table row function query result naïve “quoted”
über Σ → reward token model prompt
"""
WORDS = TEXT.split()
ROLLOUTS = 8  # of each task, one after the other
READERS = ("advlib", "json", "pyarrow.json", "datasets")


class Found(NamedTuple):
    """What a reader made of a file: the same for all of them."""

    rows: int
    reward: float


# The files.


def text(rng: random.Random, size: int) -> str:
    words: list[str] = []
    length = 0
    while length < size:
        words.append(rng.choice(WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)


def verifiers_row(task: int, nth: int, prompt: list[Any], answer: str, reward: float) -> dict:
    return {
        "example_id": task,
        "prompt": prompt,
        "completion": [{"role": "assistant", "content": answer}],
        "answer": str(task),
        "reward": reward,
        "error": None,
        "timing": {"total": 2.5},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "no_tools_called",
        "metrics": {"correct": reward, "format": 1.0},
        "tool_defs": [],
        "token_usage": {"input_tokens": 300.0, "output_tokens": 1500.0},
        "correct": reward,
        "format": 1.0,
    }


def nemo_gym_row(task: int, nth: int, prompt: list[Any], answer: str, reward: float) -> dict:
    part = {"type": "output_text", "text": answer, "annotations": []}
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": nth,
        "agent_ref": {"type": "responses_api_agents", "name": "bench_agent"},
        "responses_create_params": {"input": prompt, "tools": [], "temperature": 1.0},
        "response": {
            "id": f"resp_{task}_{nth}",
            "created_at": 1790000000.0,
            "model": "bench-policy",
            "object": "response",
            "status": "completed",
            "output": [
                {"type": "message", "id": "m", "role": "assistant", "content": [part]},
            ],
            "usage": {"input_tokens": 300, "output_tokens": 1500, "total_tokens": 1800},
        },
        "reward": reward,
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }


SHAPES: dict[str, Callable[[int, int, list[Any], str, float], dict]] = {
    "verifiers": verifiers_row,
    "nemo_gym": nemo_gym_row,
}


def make(path: Path, shape: str, size: int) -> Found:
    rng = random.Random(23)
    rows, total = 0, 0.0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            task = rows // ROLLOUTS
            prompt = [
                {"role": "system", "content": text(rng, 300)},
                {"role": "user", "content": text(rng, 900)},
            ]
            for nth in range(ROLLOUTS):
                reward = rng.randrange(5) / 4
                row = SHAPES[shape](task, nth, prompt, text(rng, 6200), reward)
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                rows, total = rows + 1, total + reward
    return Found(rows, total)


# The readers, each imported in its own process.


def with_advlib() -> Callable[[str], Found]:
    from advlib import adapters

    def read(path: str) -> Found:
        table = adapters.read(path)
        return Found(table.num_rows, sum(table.column("reward").to_pylist()))

    return read


def with_json() -> Callable[[str], Found]:
    def read(path: str) -> Found:
        with open(path, "rb") as file:
            rewards = [json.loads(line)["reward"] for line in file]
        return Found(len(rewards), sum(rewards))

    return read


def with_pyarrow() -> Callable[[str], Found]:
    import pyarrow.json

    def read(path: str) -> Found:
        table = pyarrow.json.read_json(path)
        return Found(table.num_rows, sum(table.column("reward").to_pylist()))

    return read


def with_datasets() -> Callable[[str], Found]:
    import datasets

    datasets.disable_progress_bars()

    def read(path: str) -> Found:
        with tempfile.TemporaryDirectory() as cache:  # else the second read is no read
            rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
            return Found(rows.num_rows, sum(rows["reward"]))

    return read


BUILDERS = {
    "advlib": with_advlib,
    "json": with_json,
    "pyarrow.json": with_pyarrow,
    "datasets": with_datasets,
}


def peak_mib() -> float:
    """The most memory this process has held; the kernel's mark starts anew with the program."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(name: str, path: str, repeats: int) -> dict[str, Any]:
    """In the reader's process: time it, and see that it found what is there."""
    try:
        read = BUILDERS[name]()
    except ImportError as error:
        return {"missing": str(error)}
    before = peak_mib()
    begun = time.perf_counter()
    found = read(path)
    seconds = [time.perf_counter() - begun]
    peak = peak_mib()  # of one read: later ones find memory that the first left behind
    for _ in range(repeats - 1):
        begun = time.perf_counter()
        found = read(path)
        seconds.append(time.perf_counter() - begun)
    return {"found": found, "seconds": seconds, "imports_mib": before, "peak_mib": peak}


# The comparison.


def run(name: str, path: Path, repeats: int, python: Path) -> dict[str, Any]:
    command = [str(python), __file__, "--work", name, str(path), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"missing": done.stderr.strip().splitlines()[-1:] or "no output"}
    return json.loads(done.stdout.splitlines()[-1])


def measure(shape: str, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    size = int(options.megabytes * 1e6)
    once, twice = folder / "once.jsonl", folder / "twice.jsonl"
    wanted = make(once, shape, size)
    make(twice, shape, 2 * size)
    for name in READERS:
        peer = name == "datasets" and options.peers_python is not None
        python = options.peers_python if peer else Path(sys.executable)
        first = run(name, once, options.repeats, python)
        if "missing" in first:
            yield {"shape": shape, "reader": name, **first}
            continue
        if Found(*first["found"]) != wanted:
            raise SystemExit(f"{name} found {first['found']} in {shape}, not {wanted}")
        second = run(name, twice, 1, python)
        best, median = min(first["seconds"]), statistics.median(first["seconds"])
        megabytes = once.stat().st_size / 1e6
        yield {
            "shape": shape,
            "reader": name,
            "megabytes": round(megabytes, 1),
            "rows": wanted.rows,
            "median_mb_s": round(megabytes / median, 1),
            "best_mb_s": round(megabytes / best, 1),
            "imports_mib": round(first["imports_mib"]),
            "read_mib": round(first["peak_mib"] - first["imports_mib"]),
            "read_mib_twice": round(second["peak_mib"] - second["imports_mib"]),
        }


def show(results: list[dict[str, Any]]) -> None:
    print(f"{'file':<11}{'reader':<14}{'MB/s':>8}{'best':>8}{'MiB':>8}{'at 2x':>8}{'imports':>9}")
    for row in results:
        if "missing" in row:
            print(f"{row['shape']:<11}{row['reader']:<14}  left out: {row['missing']}")
            continue
        print(
            f"{row['shape']:<11}{row['reader']:<14}{row['median_mb_s']:>8.0f}"
            f"{row['best_mb_s']:>8.0f}{row['read_mib']:>8}{row['read_mib_twice']:>8}"
            f"{row['imports_mib']:>9}"
        )


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        name, path, repeats = sys.argv[2:]
        print(json.dumps(work(name, path, int(repeats))))
        return
    parser = argparse.ArgumentParser(description="Readers of rollout files, side by side.")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers-python", type=Path, help="interpreter that has `datasets`")
    parser.add_argument("--tiny", action="store_true", help="a small file: does it run at all")
    options = parser.parse_args()
    if options.tiny:
        options.megabytes, options.repeats = 2.0, 1
    results: list[dict[str, Any]] = []
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            results.extend(measure(shape, Path(folder), options))
    show(results)
    if options.json is not None:
        report = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "results": results,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
