"""Run every benchmark: each implementation in a process of its own, checked before it is timed.

    python benchmarks/run.py [--only tokens,gae] [--peers-python PATH] [--json PATH] [--tiny]

Absolute times belong to one machine; the ratios beside them are what to look at. No test depends on
either. Peers live in an environment of their own (see peers.txt); without it they are left out, and
the report says so.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from _common import ADVLIB, Implementation, save_case
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
THEMES = ("group", "tokens", "gae", "encode", "read", "kernel", "trainer")
# They measure more than single calls, so they have harnesses of their own.
ALONE = {
    "read": "Reading rollout files",
    "kernel": "Kernel baselines",
    "trainer": "Embedded trainer",
}


class Settings(NamedTuple):
    tiny: bool
    rounds: int
    repeats: int
    budget: float
    peers_python: Path | None


def main() -> int:
    options = _options()
    console = Console()
    if not console.is_terminal:
        console = Console(width=170)
    settings = Settings(
        options.tiny, options.rounds, options.repeats, options.budget, options.peers_python
    )
    console.print(_machine_line())
    if settings.tiny:
        console.print("Tiny sizes, whatever the names say: this shows that it runs, not how fast.")
    if settings.peers_python is None:
        console.print("No environment of peers: they are left out. See benchmarks/peers.txt.")
    themes = {}
    for name in options.only:
        if name in ALONE:
            themes[name] = _run_alone(console, name, settings)
        else:
            themes[name] = _run_theme(console, f"bench_{name}", settings)
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": _machine(),
        "settings": {**settings._asdict(), "peers_python": settings.peers_python is not None},
        "themes": themes,
    }
    path = options.json or (None if settings.tiny else HERE / "results" / f"{_slug(report)}.json")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        console.print(f"Written: {os.path.relpath(path)}")
    wrong = [line for theme in themes.values() for line in theme["failures"]]
    for line in wrong:
        console.print(f"FAILED  {line}", style="bold", markup=False)
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks of advlib, with its peers beside it.")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(THEMES),
                        help=f"themes, of {', '.join(THEMES)}")  # fmt: skip
    parser.add_argument("--peers-python", type=Path, help="interpreter that has the peers")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: shows that all of it runs")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each implementation")
    parser.add_argument("--repeats", type=int, default=10, help="timed calls of a case in a turn")
    parser.add_argument("--budget", type=float, default=4.0,
                        help="seconds after which a case of a turn stops early")  # fmt: skip
    options = parser.parse_args()
    unknown = set(options.only) - set(THEMES)
    if unknown:
        parser.error(f"no theme {sorted(unknown)}; there are {', '.join(THEMES)}")
    if options.peers_python is None and PEERS.exists():
        options.peers_python = PEERS
    elif options.peers_python is not None and not options.peers_python.exists():
        parser.error(f"--peers-python {options.peers_python} does not exist")
    return options


def _run_theme(console: Console, module: str, settings: Settings) -> dict[str, Any]:
    benchmark = importlib.import_module(module)
    answers: dict[str, list[dict[str, Any]]] = {i.name: [] for i in benchmark.IMPLEMENTATIONS}
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="advlib-bench-") as data:
        for case in benchmark.cases(settings.tiny):
            save_case(Path(data), case)
        for turn in range(settings.rounds):
            for implementation in benchmark.IMPLEMENTATIONS:
                label = f"{benchmark.TITLE}: {implementation.name}, turn {turn + 1}"
                with console.status(label):
                    answer = _work(module, implementation, data, settings)
                answers[implementation.name].append(answer)
    load.append(os.getloadavg()[0])
    theme = _summary(benchmark, answers, load)
    if settings.tiny:
        theme["gates"] = []
    _print_theme(console, benchmark.TITLE, theme)
    return theme


def _run_alone(console: Console, name: str, settings: Settings) -> dict[str, Any]:
    """Run a benchmark that has a harness of its own."""
    script = f"bench_{name}.py"
    console.rule(ALONE[name])
    with tempfile.TemporaryDirectory(prefix="advlib-bench-") as folder:
        record = Path(folder) / f"{name}.json"
        command = [sys.executable, HERE / script, "--json", record]
        if settings.tiny:
            command.append("--tiny")
        if settings.peers_python is not None:
            command += ["--peers-python", settings.peers_python]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        console.print(done.stdout.rstrip(), markup=False, highlight=False)
        if done.returncode or not record.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            failure = f"{script}: exit status {done.returncode}: {last}"
            return {"about": {}, "failures": [failure]}
        return {**json.loads(record.read_text(encoding="utf-8")), "about": {}, "failures": []}


def _work(
    module: str, implementation: Implementation, data: str, settings: Settings
) -> dict[str, Any]:
    python: Path | str | None = sys.executable
    if implementation.environment == "peers":
        python = settings.peers_python
    if python is None:
        return {"skipped": "no environment of peers"}
    command = [python, HERE / "_worker.py", module, implementation.name, data]
    arguments = [str(settings.repeats), str(settings.budget)]
    # Peers must not look for models on a hub while they are imported.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*map(str, command), *arguments], capture_output=True, text=True, env=environment
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not lines[-1].startswith("{"):
        return {"failed": f"exit status {done.returncode}: {done.stderr.strip()[-500:]}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _summary(
    benchmark: ModuleType, answers: dict[str, list[dict[str, Any]]], load: list[float]
) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    failures: list[str] = []
    for name, turns in answers.items():
        for turn in turns:
            if "skipped" in turn:
                skipped[name] = turn["skipped"]
                continue
            if "failed" in turn:
                failures.append(f"{benchmark.TITLE}: {name}: {turn['failed']}")
                continue
            about[name] = {"device": turn["device"], "versions": turn["versions"]}
            for case, result in turn["results"].items():
                line = results.setdefault(case, {}).setdefault(name, {"error": 0, "seconds": []})
                line["error"] = max(line["error"], result["error"])
                line["seconds"] += result["seconds"]
                if not result["seconds"]:
                    text = f"{case}: off by {result['error']:.1e} of the largest value"
                    failures.append(f"{benchmark.TITLE}: {name}: {text}")
    for by_name in results.values():
        for line in by_name.values():
            seconds = line.pop("seconds")
            line["calls"] = len(seconds)
            line["median_ms"] = statistics.median(seconds) * 1e3 if seconds else None
            line["min_ms"] = min(seconds) * 1e3 if seconds else None
    return {
        "results": results,
        "gates": _gates(benchmark, results),
        "about": about,
        "skipped": skipped,
        "failures": sorted(set(failures)),
        "load": load,
    }


def _gates(benchmark: ModuleType, results: dict[str, Any]) -> list[dict[str, Any]]:
    gates = []
    for gate in benchmark.GATES:
        case = results.get(gate.case, {})
        ours, theirs = (case.get(n, {}).get("median_ms") for n in (gate.ours, gate.theirs))
        if ours and theirs:
            gates.append({**gate._asdict(), "ratio": ours / theirs})
    return gates


def _print_theme(console: Console, title: str, theme: dict[str, Any]) -> None:
    console.rule(title)
    results = theme["results"]
    names = list(dict.fromkeys(name for by_name in results.values() for name in by_name))
    # The longer axis goes down.
    down = len(results) >= len(names)
    lines, columns = (sorted(results), names) if down else (names, sorted(results))
    table = Table("median/min ms ×advlib")
    for column in columns:
        table.add_column(column, justify="right")
    for line in lines:
        pairs = [(line, column) if down else (column, line) for column in columns]
        table.add_row(line, *(_cell(results.get(case, {}), name) for case, name in pairs))
    console.print(table)
    for name, reason in theme["skipped"].items():
        console.print(f"left out: {name}: {reason}", markup=False)
    for gate in theme["gates"]:
        held = "holds" if gate["ratio"] <= gate["limit"] else "DOES NOT HOLD"
        text = f"{gate['case']}: {gate['ours']} / {gate['theirs']} = {gate['ratio']:.2f}"
        console.print(f"gate {held}: {text}, at most {gate['limit']}", markup=False)
    cores = os.cpu_count() or 1
    if max(theme["load"]) > cores:
        loads = " and ".join(f"{load:.1f}" for load in theme["load"])
        console.print(f"the machine was busy (load {loads} on {cores} cores): measure again")


def _cell(by_name: dict[str, Any], name: str) -> str:
    line = by_name.get(name)
    if line is None:
        return ""
    if line["median_ms"] is None:
        return "wrong"
    text = f"{_number(line['median_ms'])}/{_number(line['min_ms'])}"
    base = by_name.get(ADVLIB, {}).get("median_ms")
    return text if name == ADVLIB or not base else f"{text} ×{line['median_ms'] / base:.3g}"


def _number(milliseconds: float) -> str:
    return f"{milliseconds:.2g}" if milliseconds < 10 else f"{milliseconds:.0f}"


def _machine() -> dict[str, Any]:
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8"))
        processor = found.group(1) if found else processor
    return {
        "processor": processor or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def _machine_line() -> str:
    machine = _machine()
    return f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"


def _slug(report: dict[str, Any]) -> str:
    machine = report["machine"]
    devices = {
        line["device"] for theme in report["themes"].values() for line in theme["about"].values()
    }
    # A run of some themes does not take the place of a record of others.
    some = [] if set(report["themes"]) == set(THEMES) else list(report["themes"])
    words = [*some, machine["processor"], f"{machine['cores']} cores", *sorted(devices - {"cpu"})]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
