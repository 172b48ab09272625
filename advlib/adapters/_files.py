"""Which files a path stands for: itself, what a folder or a pattern holds, and its companions."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from advlib.adapters._report import FormatError

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
SIDECAR = "_failures.jsonl"
INPUTS = "_materialized_inputs.jsonl"
COMPRESSED = (".gz", ".zst")

# Files that stand beside rollouts and hold none.
_NO_ROLLOUTS = {
    ".index.jsonl": "an index of another file",
    INPUTS: "inputs of a NeMo Gym run, no rollouts",
    "_reward_profiling.jsonl": "statistics of a NeMo Gym run",
    "rollout_verdicts.jsonl": "health check of a NeMo Gym run",
}

PathLike = str | os.PathLike[str]


class Found(NamedTuple):
    """What the caller's paths stand for.

    Attributes:
        files: files to read, in order, each once.
        named: those that were named one by one; in a folder a file may turn out to be no rollouts.
        ignored: files that were left alone, with the reason.
        left_out: a folder of which no file is taken, None for none.
    """

    files: list[str]
    named: set[str]
    ignored: dict[str, str]
    left_out: PathLike | None = None

    def takes(self, path: str) -> bool:
        """Whether a path is outside the folder that is left out."""
        if self.left_out is None:
            return True
        folder = os.path.join(os.path.realpath(self.left_out), "")
        return not os.path.realpath(path).startswith(folder)


def find(paths: PathLike | Iterable[PathLike], *, leave_out: PathLike | None = None) -> Found:
    """Expand files, folders and patterns.

    Args:
        paths: one path or several. A folder stands for every `*.jsonl`, `*.jsonl.gz` and
            `*.jsonl.zst` below it, sorted, hidden ones aside. A pattern (`*`, `?`, `[`) that is
            no file's name stands for its matches, sorted.
        leave_out: a folder of which no file is taken, such as the one that is written to.

    Raises:
        FileNotFoundError: a path does not exist, or a pattern matches nothing.
        FormatError: a folder holds no such file, there is no path at all, or a path is a pipe.
    """
    found = Found([], set(), {}, leave_out)
    seen: set[str] = set()

    def take(path: str) -> None:
        if not os.path.isfile(path):
            raise FormatError(f"{path}: a pipe or device cannot be read twice: save it to a file")
        if path.encode("utf-8", "ignore").decode() != path:
            told = repr(path)[1:-1]
            raise FormatError(f"{told}: a file's name is not UTF-8, and a table cannot hold it")
        real = os.path.realpath(path)
        if not found.takes(path):
            found.ignored[path] = "in the folder that is written to"
        elif real not in seen:
            seen.add(real)
            found.files.append(path)

    for path in _as_list(paths):
        if os.path.isdir(path):
            _walk(path, take, found)
        elif os.path.exists(path):
            found.named.add(path)
            take(path)
        else:
            matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
            if not matches:
                what = "no file matches" if glob.has_magic(path) else "no such file or folder"
                raise FileNotFoundError(f"{path}: {what}")
            for match in matches:
                if os.path.isdir(match):
                    _walk(match, take, found)
                else:
                    take(match)
    if not found.files:
        left = next(iter(found.ignored.items()), None)
        raise FormatError(f"{left[0]}: {left[1]}" if left else "no path to read was given")
    _leave_inputs(found)
    return found


def _leave_inputs(found: Found) -> None:
    """Take out a run's inputs where its rollouts are named too, as by a shell's `*.jsonl`."""
    plain = {plain_name(path) for path in found.files}
    for path in list(found.files):
        main = plain_name(path).removesuffix(INPUTS) + ".jsonl"
        if plain_name(path).endswith(INPUTS) and main in plain:
            found.files.remove(path)
            found.named.discard(path)
            found.ignored[path] = _NO_ROLLOUTS[INPUTS]


def plain_name(path: str) -> str:
    """The path without the suffix of its compression."""
    for suffix in COMPRESSED:
        path = path.removesuffix(suffix)
    return path


def _as_list(paths: PathLike | Iterable[PathLike]) -> Sequence[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def _walk(folder: str, take: Callable[[str], None], found: Found) -> None:
    before = len(found.files) + len(found.ignored)
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or not name.endswith(SUFFIXES):
                continue
            path = os.path.join(root, name)
            why = _no_rollouts(name, names)
            if why is None:
                take(path)
            else:
                found.ignored[path] = why
    if len(found.files) + len(found.ignored) == before:
        raise FormatError(f"{folder}: no {', '.join('*' + s for s in SUFFIXES)} in this folder")


def _no_rollouts(name: str, beside: Container[str]) -> str | None:
    if name == "journal.jsonl" and "run.json" in beside:
        return "the journal of a grading"
    plain = plain_name(name)
    return next((why for end, why in _NO_ROLLOUTS.items() if plain.endswith(end)), None)


def companions(path: str, format: str) -> list[str]:
    """What belongs to a file and stands beside it: a sidecar, or annotations."""
    plain = plain_name(path)
    if format == "nemo_gym" and plain.endswith(".jsonl"):
        sidecar = plain.removesuffix(".jsonl") + SIDECAR
        beside = [sidecar + suffix for suffix in ("", *COMPRESSED)]
        return [companion for companion in beside if os.path.isfile(companion)]
    folder = os.path.join(os.path.dirname(path), "annotations")
    if format == "prime_rl" and os.path.isdir(folder):
        names = sorted(os.listdir(folder))
        return [
            os.path.join(folder, name)
            for name in names
            if name.endswith(SUFFIXES) and _no_rollouts(name, names) is None
        ]
    return []
