"""GS1 from prompts to advantages, beside the recipe of scikit-learn and NumPy in float64.

    python benchmarks/bench_kernel.py [--json PATH] [--tiny] [--only NAME,NAME]

Prompts have 45 words, about 35 of which the vectoriser knows from its training prompts, drawn from
a vocabulary in which the k-th word is k times rarer than the first. Time is from text to
advantages, and without the vectorising. Each implementation does each case in a process of its own.
Its largest resident memory is reported, interpreter, libraries and prompts included, and how much
of that was there before the batch came. advlib loads a vectoriser that another process fitted and
saved, as a training job does; the recipe's cannot be saved without pickle and is fitted in place.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

KNOWN, UNKNOWN, LENGTH, TRAINING = 20_000, 4_000, 45, 4_096
TEMPERATURE = 0.1
TOLERANCE = 1e-5


Pair = tuple[Callable[[list[str]], Any], Callable[[Any, np.ndarray], np.ndarray]]


class Case(NamedTuple):
    """A batch: how many rollouts, of how many prompts, and what the recipe can do of it.

    Attributes:
        name: a line of the table.
        rollouts: B.
        prompts: distinct ones.
        repeats: timed calls.
        recipe: the recipe does it too: B² numbers fit in memory.
        gates: limits of (times as fast as the recipe, seconds, megabytes), None where there is
            none. Seconds are from the text on, and so is the ratio at 32; others leave it out.
    """

    name: str
    rollouts: int
    prompts: int
    repeats: int
    recipe: bool
    gates: tuple[float | None, float | None, float | None]


CASES = (
    Case("32", 32, 32, 300, True, (1.0, None, None)),
    Case("4096", 4_096, 4_096, 9, True, (3.5, None, None)),
    Case("16384", 16_384, 16_384, 3, True, (7.0, None, 300)),
    Case("65536", 65_536, 65_536, 1, False, (None, 20, 500)),
    Case("65536 of 8192", 65_536, 8_192, 3, False, (None, 1.5, None)),
    Case("1000000 of 125000", 1_000_000, 125_000, 1, False, (None, 120, None)),
)
TINY = (
    Case("32", 32, 32, 3, True, (None, None, None)),
    Case("1200", 1_200, 1_200, 3, True, (None, None, None)),
    Case("1200 of 150", 1_200, 150, 3, True, (None, None, None)),
)
IMPLEMENTATIONS = ("advlib", "recipe")


def texts(count: int, seed: int, unknown: bool) -> list[str]:
    """Prompts; with ``unknown``, a fifth of the words are ones that no training prompt has."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, KNOWN + 1)
    edges = np.cumsum(share / share.sum())
    prompts = []
    for start in range(0, count, 4096):
        size = min(4096, count - start)
        words = np.searchsorted(edges, rng.random((size, LENGTH)))
        if unknown:
            strange = rng.random(words.shape) < 0.05
            words[strange] = KNOWN + rng.integers(UNKNOWN, size=int(strange.sum()))
        prompts += [" ".join(f"w{word:x}q" for word in row) for row in words.tolist()]
    return prompts


def batch(case: Case) -> tuple[list[str], np.ndarray]:
    prompts = texts(case.prompts, 1, unknown=True)
    rng = np.random.default_rng(2)
    if case.prompts < case.rollouts:
        which = rng.permutation(np.arange(case.rollouts) % case.prompts)
        prompts = [prompts[i] for i in which.tolist()]
    return prompts, (rng.random(case.rollouts) < 0.5).astype(np.float64)


def recipe(training: list[str]) -> Pair:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer().fit(training)

    def advantages(x: Any, rewards: np.ndarray) -> np.ndarray:
        w = np.exp((x @ x.T).toarray() / TEMPERATURE)
        np.fill_diagonal(w, 0.0)
        return rewards - (w @ rewards) / w.sum(1)

    return vectoriser.transform, advantages


def advlib(training: list[str]) -> Pair:
    import advlib
    from advlib.text import load

    del training  # the same ones, in the process that fits
    with tempfile.TemporaryDirectory(prefix="advlib-bench-") as folder:
        path = str(Path(folder) / "tfidf.json")
        subprocess.run([sys.executable, __file__, "--fit", path], check=True)
        vectoriser = load(path)

    def advantages(features: Any, rewards: np.ndarray) -> np.ndarray:
        return np.asarray(advlib.gs1(features, rewards, temperature=TEMPERATURE))

    return vectoriser.transform, advantages


def work(name: str, case: Case, result: str) -> dict[str, Any]:
    """One implementation on one case, in this process."""
    make = {"recipe": recipe, "advlib": advlib}[name]
    vectorise, estimate = make(texts(TRAINING, 0, unknown=False))
    prompts, rewards = batch(case)
    warm = min(case.rollouts, 600)
    estimate(vectorise(prompts[:warm]), rewards[:warm])
    before = _peak()
    calls: list[tuple[float, float, float]] = []
    for _ in range(case.repeats + (case.repeats > 1)):
        start, begun = time.perf_counter(), time.process_time()
        features = vectorise(prompts)
        between = time.perf_counter()
        got = estimate(features, rewards)
        end = time.perf_counter()
        calls.append((end - start, end - between, time.process_time() - begun))
    if case.repeats > 1:
        del calls[0]
    np.save(result, got)
    total, alone, used = zip(*calls, strict=True)
    return {
        "median_s": statistics.median(total),
        "min_s": min(total),
        "estimator_s": statistics.median(alone),
        "cpu_s": statistics.median(used),
        "peak_mb": _peak(),
        "before_mb": before,
        "calls": len(calls),
    }


def _peak() -> float:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8"))
        if found:
            return int(found.group(1)) / 1000
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e3
    )


def measure(cases: tuple[Case, ...], tiny: bool) -> Iterator[dict[str, Any]]:
    for case in cases:
        line: dict[str, Any] = {"case": case.name, "load": [os.getloadavg()[0]]}
        results = {}
        with tempfile.TemporaryDirectory(prefix="advlib-bench-") as folder:
            for name in IMPLEMENTATIONS:
                if name == "recipe" and not case.recipe:
                    continue
                path = Path(folder) / f"{name}.npy"
                command = [sys.executable, __file__, "--work", name, case.name, path]
                done = subprocess.run(
                    [*map(str, command), *(["--tiny"] if tiny else [])],
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    raise SystemExit(f"{name}, {case.name}: {done.stderr.strip()[-800:]}")
                line[name] = json.loads(done.stdout.strip().splitlines()[-1])
                results[name] = np.load(path)
        line["load"].append(os.getloadavg()[0])
        if len(results) == 2:
            line["error"] = float(np.abs(results["advlib"] - results["recipe"]).max())
        line["gates"] = [] if tiny else _gates(case, line)
        yield line


def _gates(case: Case, line: dict[str, Any]) -> list[dict[str, Any]]:
    faster, seconds, megabytes = case.gates
    ours = line["advlib"]
    gates = []
    if faster is not None:
        of = "median_s" if case.rollouts <= 32 else "estimator_s"
        value = line["recipe"][of] / ours[of]
        gates.append({"what": "times as fast", "value": value, "at least": faster})
    if seconds is not None:
        gates.append({"what": "seconds", "value": ours["median_s"], "at most": seconds})
    if megabytes is not None:
        gates.append({"what": "megabytes", "value": ours["peak_mb"], "at most": megabytes})
    for gate in gates:
        low, high = gate.get("at least", -np.inf), gate.get("at most", np.inf)
        gate["holds"] = bool(low <= gate["value"] <= high)
    return gates


def _show(line: dict[str, Any]) -> str:
    parts = [f"{line['case']:>18}"]
    for name in IMPLEMENTATIONS:
        if name in line:
            m = line[name]
            parts.append(f"{name} {_time(m['median_s'])} (estimator {_time(m['estimator_s'])}, "
                         f"cpu {_time(m['cpu_s'])}), {m['peak_mb']:.0f} MB, "
                         f"{m['before_mb']:.0f} before")  # fmt: skip
    if "error" in line:
        parts.append(f"differ by {line['error']:.1e}")
    for gate in line["gates"]:
        limit = next(f"{k} {gate[k]:g}" for k in ("at least", "at most") if k in gate)
        held = "holds" if gate["holds"] else "DOES NOT HOLD"
        parts.append(f"gate {held}: {gate['what']} {gate['value']:.3g}, {limit}")
    if max(line["load"]) > (os.cpu_count() or 1):
        parts.append("busy machine, load " + " and ".join(f"{x:.1f}" for x in line["load"]))
    return "  ".join(parts)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: shows that all of it runs")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of cases")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--peers-python", help="taken and not needed: the recipe's parts are ours")
    options = parser.parse_args()
    cases = TINY if options.tiny else CASES
    if options.fit:
        from advlib.text import fit_tfidf

        fit_tfidf(texts(TRAINING, 0, unknown=False)).save(options.fit)
        return 0
    if options.work:
        name, case, result = options.work
        print(json.dumps(work(name, next(c for c in cases if c.name == case), result)))
        return 0
    if options.only:
        cases = tuple(case for case in cases if case.name in options.only)
    lines = []
    for line in measure(cases, options.tiny):
        lines.append(line)
        print(_show(line), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"lines": lines}, indent=1) + "\n", encoding="utf-8")
    wrong = [line["case"] for line in lines if line.get("error", 0.0) > TOLERANCE]
    for name in wrong:
        print(f"FAILED  {name}: the two disagree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
