"""What every benchmark shares: cases, implementations, and how one call is timed.

Imports NumPy alone, so that a peer's process holds the peer and nothing else.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
ADVLIB = "advlib"  # the implementation whose time the ratios are taken of


class Case(NamedTuple):
    """One problem: inputs, and what a float64 reference makes of them.

    Attributes:
        name: a line of the table; also a folder, so no slashes.
        inputs: arrays without Python objects.
        expected: one array for each output.
        tolerance: largest deviation from ``expected`` that counts as agreement, relative to the
            largest expected magnitude.
    """

    name: str
    inputs: Arrays
    expected: Arrays
    tolerance: float = 1e-4


class Prepared(NamedTuple):
    """A call to be timed.

    Attributes:
        call: does the work; whatever it needs is already where it wants it.
        outputs: brings a result of ``call`` to host arrays that ``Case.expected`` is compared with.
        wait: blocks until a result is there.
    """

    call: Callable[[], Any]
    outputs: Callable[[Any], Arrays]
    wait: Callable[[Any], Any] = lambda result: result


class Implementation(NamedTuple):
    """One way to do the work, timed in a process of its own.

    Attributes:
        name: a column of the table.
        environment: "base" for the interpreter that runs the benchmarks, "peers" for the peers'.
        package: the distribution whose version is recorded; absent, the implementation is skipped.
        prepare: from a case to a call; None where it does not do this case.
    """

    name: str
    environment: Literal["base", "peers"]
    package: str
    prepare: Callable[[Case], Prepared | None]


class Gate(NamedTuple):
    """A ratio that is meant to hold: ours / theirs <= limit, of medians."""

    case: str
    ours: str
    theirs: str
    limit: float


def uids(numbers: np.ndarray) -> np.ndarray:
    """A string of 36 characters for each number, as a UUID has; no Python objects."""
    plain = numbers.tolist()
    return np.array([f"{i * 2654435761 % 2**32:08x}-0000-4000-8000-{i:012x}" for i in plain])


def save_case(folder: Path, case: Case) -> None:
    for kind, arrays in (("inputs", case.inputs), ("expected", case.expected)):
        target = folder / case.name / kind
        target.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(target / f"{name}.npy", array, allow_pickle=False)
    (folder / case.name / "tolerance").write_text(repr(case.tolerance), encoding="utf-8")


def load_case(folder: Path) -> Case:
    def arrays(kind: str) -> Arrays:
        files = sorted((folder / kind).glob("*.npy"))
        return {file.stem: np.load(file, allow_pickle=False) for file in files}

    tolerance = float((folder / "tolerance").read_text(encoding="utf-8"))
    return Case(folder.name, arrays("inputs"), arrays("expected"), tolerance)


def deviation(got: Arrays, expected: Arrays) -> float:
    """The largest deviation over all outputs, each relative to its largest expected magnitude."""
    worst = 0.0
    for name, want in expected.items():
        have = np.asarray(got[name])
        if have.shape != want.shape:
            raise ValueError(f"{name}: expected shape {want.shape}, got {have.shape}")
        if not want.size:
            continue
        scale = max(float(np.abs(want).max()), 1e-30)
        worst = max(worst, float(np.abs(have.astype(np.float64) - want).max()) / scale)
    return worst


def time_calls(prepared: Prepared, repeats: int, budget: float) -> list[float]:
    """Seconds of each call, after a warm-up; fewer than ``repeats`` past the budget, at least 3."""
    for _ in range(3):
        prepared.wait(prepared.call())
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < repeats:
        start = time.perf_counter()
        result = prepared.wait(prepared.call())
        seconds.append(time.perf_counter() - start)
        del result  # its memory goes back between calls, as in a training step
        if len(seconds) >= 3 and time.perf_counter() - begun > budget:
            break
    return seconds


def jax_prepared(
    call: Callable[[], Any], outputs: Callable[[Any], Arrays] | None = None
) -> Prepared:
    """A call that returns JAX arrays; by default one, named "advantages"."""
    import jax

    def single(result: Any) -> Arrays:
        return {"advantages": np.asarray(result)}

    return Prepared(call, outputs or single, jax.block_until_ready)


def torch_prepared(call: Callable[[], Any], outputs: Callable[[Any], Arrays]) -> Prepared:
    """A call that returns torch tensors, on CUDA where torch has it."""
    import torch

    if not torch.cuda.is_available():
        return Prepared(call, outputs)

    def wait(result: Any) -> Any:
        torch.cuda.synchronize()
        return result

    return Prepared(call, outputs, wait)


def torch_tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array).to("cuda" if torch.cuda.is_available() else "cpu")


def versions(package: str) -> dict[str, str]:
    """What this process runs on, for the record; no host name and no path."""
    found = {"python": platform.python_version()}
    for name in ("numpy", "jax", "torch", package):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def device(package: str) -> str:
    """Where this process's arrays live."""
    if package in ("advlib", "rlax", "google-tunix"):
        import jax

        first = jax.devices()[0]
        return first.platform if first.platform == "cpu" else first.device_kind
    if package == "verl":
        import torch

        return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
    return "cpu"
