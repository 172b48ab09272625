"""The floors of the house: a file imports lower floors only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "advlib"

FLOORS = {
    "_version": 0,
    "_checks": 0,
    "_segments": 0,
    "_mesh": 0,
    "_batch": 0,
    "groups": 0,
    "masking": 1,
    "text": 1,
    "estimators": 2,
    "losses": 2,
    "diagnostics": 3,
    "grading": 3,
    "adapters": 4,
    "samples": 4,
    "plugins": 5,
    "trainer": 5,
    "experiments": 6,
    "cli": 7,
    "__main__": 8,
}
# Where a third-party package may be imported, by the floor or folder that needs it.
ALLOWED = {
    "jax": {"*"},
    "numpy": {"*"},
    "scipy": {"text", "estimators", "diagnostics", "grading"},  # grading: rank correlation
    "sklearn": {"text"},
    "threadpoolctl": {"estimators"},  # comes with scikit-learn
    "msgspec": {"adapters", "cli", "grading", "trainer", "experiments"},
    "pyarrow": {"adapters", "cli", "experiments"},
    "optax": {"trainer", "experiments"},  # a spec names an optimizer
    # Subclassed in trainer/llm/_models.py, which only functions import; see the last test.
    "flax": {"trainer"},
    "tunix": {"trainer"},
    "typer": {"cli"},
    "rich": {"cli", "trainer"},  # a training loop shows how far it is
    "click": {"cli"},
}
FRAMEWORKS_WITHIN = {"plugins", "grading", "trainer", "experiments"}
# Files, clocks and processes begin above the arrays; grading talks to a grader.
OUTER_WORLD = {
    "os",
    "io",
    "pathlib",
    "time",
    "datetime",
    "subprocess",
    "socket",
    "tempfile",
}
# What of it a file may know all the same, and why.
KNOWN_OUTSIDE = {
    "text/_tfidf.py": {"os", "pathlib"},  # a fitted vocabulary is saved and loaded
    "estimators/_kernel_host.py": {"os"},  # how many processors its threads may use
}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The folder or the module right under the package that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool, int]]:
    """Every module that a file imports, whether at import time, and the line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    deferred: set[int] = set()
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if is_function or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            deferred.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        eager = id(node) not in deferred
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, eager, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = ("advlib", *path.relative_to(PACKAGE).parts)[: -node.level]
                module = ".".join([*parts, module]).rstrip(".")
            yield module, eager, node.lineno
            if module == "advlib":
                for alias in node.names:
                    yield f"advlib.{alias.name}", eager, node.lineno


def own_imports(path: Path) -> Iterator[tuple[str, int]]:
    for module, _, line in imports(path):
        parts = module.split(".")
        if parts[0] == "advlib" and len(parts) > 1:
            yield parts[1], line


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    assert part in FLOORS, f"{part} has no floor"
    for target, line in own_imports(path):
        # A public function of the package itself counts as the floor that defines it.
        floor = FLOORS.get(target, FLOORS["estimators"])
        if target != part:
            assert floor < FLOORS[part] or (floor == FLOORS[part] == 0), (
                f"{path.name}:{line}: {part} (floor {FLOORS[part]}) imports {target} ({floor})"
            )


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_party_packages_stay_where_they_belong(path: Path) -> None:
    part = part_of(path)
    for module, eager, line in imports(path):
        name = module.split(".")[0]
        if name in sys.stdlib_module_names or name in ("advlib", ""):
            continue
        where = f"{path.relative_to(PACKAGE)}:{line} imports {module}"
        allowed = ALLOWED.get(name)
        if allowed is None:
            assert part in FRAMEWORKS_WITHIN, where
            assert not eager, f"{where} at import time"
        else:
            assert "*" in allowed or part in allowed, where


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrays_know_no_files_and_no_clocks(path: Path) -> None:
    part = part_of(path)
    if FLOORS.get(part, 9) > FLOORS["diagnostics"] or part == "grading":
        return
    outside = OUTER_WORLD - KNOWN_OUTSIDE.get(path.relative_to(PACKAGE).as_posix(), set())
    for module, _, line in imports(path):
        assert module.split(".")[0] not in outside, f"{path.name}:{line} imports {module}"


def test_adapters_know_no_estimator() -> None:
    for path in files():
        if part_of(path) == "adapters":
            for target, line in own_imports(path):
                # Of grading they take episodes and annotations, which are data.
                allowed = ("adapters", "groups", "grading")
                assert target in allowed, f"{path.name}:{line} imports {target}"


def test_the_reference_knows_no_package() -> None:
    reference = Path(__file__).parent / "reference.py"
    tree = ast.parse(reference.read_text(encoding="utf-8"))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }
    assert not names & {"jax", "advlib"}


def test_importing_the_package_brings_jax_and_numpy_only() -> None:
    program = (
        "import sys, jax, jax.numpy, jax.scipy, numpy\n"
        "before = {name.split('.')[0] for name in sys.modules}\n"
        "import advlib\n"
        "after = {name.split('.')[0] for name in sys.modules}\n"
        "print(*sorted(after - before - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["advlib"]


def test_importing_the_package_starts_no_device() -> None:
    program = "import advlib\nfrom jax._src import xla_bridge\nprint(len(xla_bridge._backends))\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0"]


def test_importing_the_loader_of_models_brings_no_framework() -> None:
    program = (
        "import sys, advlib.trainer.llm\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(*sorted(names & {'flax', 'tunix', 'qwix', 'transformers', 'safetensors'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
