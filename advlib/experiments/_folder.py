"""The folder of a run: what is decided is written before what follows from it begins."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from advlib import diagnostics
from advlib.experiments.reading import SpecError

STAGES = ("start", "preflight", "forced", "calibration", "pilot", "arms", "evaluation", "decision")


class Folder:
    """Stages of a run on disk, each whole or not there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """A folder that may not exist yet."""
        self.path = Path(path)

    def begin(self, spec_text: str, *, resume: bool) -> None:
        """Make the folder, or find in it the run of the same spec.

        Raises:
            SpecError: it holds another run, or one that ``resume`` does not ask for.
            OSError: it cannot be made.
        """
        known = self.path / "spec.json"
        if known.exists():
            if not resume:
                raise SpecError(f"{self.path} holds an experiment; resume it, or name another")
            if known.read_bytes() != spec_text.encode():
                raise SpecError(f"{self.path} holds the experiment of another spec")
            return
        # A run killed while it wrote its spec has left a part of it, and nothing to lose.
        found = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if found - {"spec.json.part"}:
            raise SpecError(f"{self.path} is not empty, and holds no experiment")
        self.path.mkdir(parents=True, exist_ok=True)
        write(known, spec_text)

    def stage(self, name: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record of a stage: as it was written, or run now and written.

        Args:
            name: one of ``STAGES``, or a part of one after a slash.
            run: does the work; plain JSON values.
        """
        where = self.path / "stages" / f"{self._number(name)}-{name.replace('/', '-')}.json"
        if not where.exists():
            write(where, json_text(run()))
        # Read back even when just written, so that a resumed run sees the same numbers.
        return read_json(where)

    def time(self, name: str, seconds: float) -> None:
        """Add to the seconds of a part; times stand apart from what is compared."""
        self.note("seconds", name, self.times().get(name, 0.0) + seconds)

    def note(self, part: str, name: str, value: float) -> None:
        """Set one number of a part of the times."""
        known = self._timing()
        known.setdefault(part, {})[name] = value
        write(self.path / "timing.json", json_text(known))

    def times(self) -> dict[str, float]:
        """Seconds by stage, over all times that the run was resumed."""
        return dict(self._timing().get("seconds", {}))

    def _timing(self) -> dict[str, Any]:
        path = self.path / "timing.json"
        return read_json(path) if path.exists() else {}

    def _number(self, name: str) -> str:
        return f"{STAGES.index(name.partition('/')[0]) + 1:02d}"


def write(path: Path, data: str | bytes) -> None:
    """Write a file so that, killed at any moment, it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """Read an object that :func:`write` wrote.

    Raises:
        SpecError: it is damaged: what is written here is there whole or not at all.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise SpecError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise SpecError(f"{path} is damaged: it holds no object")
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a file of JSON lines.

    Raises:
        SpecError: a line is no object.
    """
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            one = json.loads(line)
        except ValueError as error:
            raise SpecError(f"{path}:{number} is damaged: {error}") from None
        if not isinstance(one, dict):
            raise SpecError(f"{path}:{number} is damaged: it holds no object")
        found.append(one)
    return found


def json_text(value: Any) -> str:
    """Plain values as JSON, keys in order, NaN and infinity as null."""
    return json.dumps(plain(value), indent=1, sort_keys=True, allow_nan=False) + "\n"


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(plain(row), sort_keys=True, allow_nan=False) + "\n" for row in rows)


def plain(value: Any) -> Any:
    """A value as JSON has it: named tuples are objects, arrays are lists, NaN is null."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def save_params(path: Path, params: Any) -> str:
    """Write parameters as an NPZ archive of arrays; returns their hash."""
    arrays = named(params)
    stored = {name: _storable(array) for name, array in arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **stored)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return diagnostics.content_hash(arrays)


def load_params(path: Path, like: Any) -> Any:
    """Read parameters back into the structure of others.

    Raises:
        SpecError: it is damaged, or names, shapes or dtypes are not those of ``like``.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise SpecError(f"{path} is damaged: {error}") from None
    wanted, read = named(like), []
    for name, array in wanted.items():
        found = arrays.get(name)
        stored = _storable(array)
        if found is None or found.shape != stored.shape or found.dtype != stored.dtype:
            raise SpecError(f"{path}: {name} must be {array.dtype} of shape {array.shape}")
        read.append(jax.numpy.asarray(found.view(array.dtype)))
    return jax.tree.unflatten(jax.tree.structure(like), read)


def params_hash(params: Any) -> str:
    """SHA-256 of the parameters' names, shapes, dtypes and bytes."""
    return diagnostics.content_hash(named(params))


def named(params: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree by their path, in the tree's order."""
    leaves, _ = jax.tree.flatten_with_path(params)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _storable(array: np.ndarray) -> np.ndarray:
    """Types that NumPy does not know by itself, such as bfloat16, as their bits."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array
