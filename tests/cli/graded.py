"""Episodes on disk, what a grader says about them, and runs of ``advlib grade``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advlib import grading
from advlib.adapters.episodes import index_episodes
from tests.grading import agents, recompute
from tests.grading.server import Call, GraderServer, Reply, names

PROGRAM = (sys.executable, "-c", "import sys; from advlib.cli import main; sys.exit(main())")
SECRET = "ADVLIB_GRADER_API_KEY"
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in {"XLA_FLAGS", "COLUMNS", SECRET}}
OUTPUTS = ("annotations.jsonl", "annotations.parquet", "grades.jsonl")

Reader = Callable[[str, dict[str, str]], str]  # group and labels to the text of an answer


def perfect(mode: str, *, miscite: bool | None = None) -> Reader:
    """What the grader of the made set says; some of its citations are wrong."""
    return lambda group, labels: json.dumps(agents.verdict(group, labels, mode, miscite=miscite))


def labels_of(episodes: Path, mode: str) -> dict[str, dict[str, str]]:
    """Labels of every group, worked out without the package."""
    return {group.id: group.labels for group in recompute.groups([episodes], mode)}


def mixed(episodes: Path) -> list[str]:
    """Groups that rewards mode has to grade, in the order of the file."""
    groups = recompute.groups([episodes], "rewards")
    return [group.id for group in groups if len(set(group.rewards.values())) > 1]


def replay(path: Path, episodes: Path, mode: str, reader: Reader | None = None) -> Path:
    """A replay file with an answer for every group."""
    read = reader or perfect(mode)
    with path.open("w") as file:
        for group, labels in labels_of(episodes, mode).items():
            line = {
                "group": group,
                "labels": labels,
                "text": read(group, labels),
                "trace_id": f"grade-{group}",
                "model": "made",
                "usage": {"input_tokens": 100, "output_tokens": 10, "cost": 0.25},
            }
            file.write(json.dumps(line) + "\n")
    return path


def prompts(episodes: Path, mode: str, **privileged: str) -> dict[str, str]:
    """The digest of each group's prompt to the group's id."""
    with index_episodes(episodes) as index:
        groups: Any = [
            grading.candidates(index.load(key), mode=mode, privileged=privileged)  # type: ignore[arg-type]
            for key in index.groups
        ]
    return names(groups)


def server(
    episodes: Path,
    mode: str,
    *,
    delay: float = 0.0,
    reader: Reader | None = None,
    fault: Callable[[Call], Reply | None] = lambda call: None,
    **privileged: str,
) -> GraderServer:
    """A server that answers for every group, unless a fault is planted."""
    labels = labels_of(episodes, mode)
    read = reader or perfect(mode)

    def reply(call: Call) -> Reply:
        planted = fault(call)
        if planted is not None:
            return planted
        return Reply.of(read(call.name, labels[call.name]), delay=delay)

    return GraderServer(reply, names=prompts(episodes, mode, **privileged))


def http(made: GraderServer) -> list[str]:
    """Options that name a server."""
    return ["-g", "http", "--base-url", made.url, "--model", "judge"]


def start(*words: object, **environment: str) -> subprocess.Popen[str]:
    """A process of ``advlib grade``."""
    return subprocess.Popen(
        [*PROGRAM, "grade", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | environment,
    )


def outputs(folder: Path) -> dict[str, bytes]:
    """What must be the same however a run got there."""
    return {name: (folder / name).read_bytes() for name in OUTPUTS}


def journal(folder: Path) -> dict[str, dict[str, Any]]:
    """The newest line of each group; every line must be whole."""
    text = (folder / "journal.jsonl").read_text()
    return {line["group"]: line for line in map(json.loads, text.splitlines())}
