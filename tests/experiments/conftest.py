"""One finished run that many tests read, and one that its gate stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

from advlib.experiments import run_experiment
from tests.experiments import made
from tests.quick import quick_to_compile

__all__ = ["finished", "plain_promotion", "quick_to_compile", "stopped"]


class Run(NamedTuple):
    folder: Path
    record: dict[str, Any]
    said: list[str]


@pytest.fixture(scope="session", autouse=True)
def plain_promotion() -> Iterator[None]:
    """Optax and orbax add Python numbers to arrays, which the suite's strict rules refuse."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All questions have the same words: no kernel knows which are hard."""
    return run(tmp_path_factory.mktemp("stopped") / "run", telling=False)


def run(folder: Path, *, telling: bool = True, broken: float = 0.0, **changes: Any) -> Run:
    said: list[str] = []
    given = made.tasks(telling=telling, broken=broken)
    record = run_experiment(made.spec(**changes), folder, given=given, told=said.append)
    return Run(folder, record, said)
