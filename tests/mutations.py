"""Break the package on purpose, one way at a time, and see whether the tests notice.

Run by hand from anywhere: ``python tests/mutations.py [table or name ...]``. Every mutation is
applied in a temporary copy of the repository, where the named tests run until the first failure.
The exit status is 1 if a mutation survives, or if its text is no longer found once in its file.
``--check`` looks for the texts alone, and runs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants import Mutation, core, diagnostics, experiments, grading, trainer

ROOT = Path(__file__).parent.parent
TABLES = {
    "core": core.MUTATIONS,
    "diagnostics": diagnostics.MUTATIONS,
    "grading": grading.MUTATIONS,
    "trainer": trainer.MUTATIONS,
    "experiments": experiments.MUTATIONS,
}
LONGEST = 300  # seconds of one mutation's tests


def run(mutation: Mutation, copy: Path) -> tuple[str, float]:
    """What became of one mutation, and after how many seconds."""
    path = copy / mutation.file
    original = path.read_text(encoding="utf-8")
    if original.count(mutation.old) != 1:
        return f"TEXT FOUND {original.count(mutation.old)} TIMES", 0.0
    path.write_text(original.replace(mutation.old, mutation.new), encoding="utf-8")
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", *mutation.tests.split()]
    if mutation.select:
        command += ["-k", mutation.select]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return "TESTS DID NOT END", time.monotonic() - started
    finally:
        path.write_text(original, encoding="utf-8")
    seconds = time.monotonic() - started
    if done.returncode == 0:
        return "SURVIVED", seconds
    failed = re.search(r"^(?:FAILED|ERROR) \S+?::(.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        return f"TESTS DID NOT RUN (status {done.returncode})", seconds
    return f"caught by {failed[1]}", seconds


def chosen(words: list[str]) -> list[Mutation]:
    """The mutations of the named tables and those of the given names; all without any."""
    return [
        mutation
        for table, mutations in TABLES.items()
        for mutation in mutations
        if not words or table in words or mutation.name in words
    ]


def check(mutations: list[Mutation]) -> int:
    """Print the mutations whose text or tests the code has left behind."""
    bad = 0
    for mutation in mutations:
        found = (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        missing = [name for name in mutation.tests.split() if not (ROOT / name).exists()]
        if found != 1 or missing:
            bad += 1
            told = f"no {', '.join(missing)}" if missing else f"text found {found} times"
            print(f"{mutation.name}: {mutation.file}: {told}")
    return 1 if bad or not mutations else 0


def main(words: list[str]) -> int:
    """Run the chosen mutations and print what became of each."""
    mutations = chosen([word for word in words if word != "--check"])
    if "--check" in words:
        return check(mutations)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        skip = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "site", "*.ipynb")
        shutil.copytree(ROOT, copy, ignore=skip)
        for mutation in mutations:
            outcome, seconds = run(mutation, copy)
            bad += not outcome.startswith("caught")
            print(f"{mutation.name:52s} {outcome}  ({seconds:.0f} s)", flush=True)
    print(f"{len(mutations) - bad} of {len(mutations)} mutations caught")
    return 1 if bad or not mutations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
