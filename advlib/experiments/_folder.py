"""The folder of a run: what is decided is written before what follows from it begins."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from advlib.experiments._revisions import changes
from advlib.experiments.reading import SpecError

FULL = os.strerror(errno.ENOSPC)
SEAL = "sha256"  # key of a stage's record with the hash of the rest
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
                told = "; ".join(changes(read_json(known), json.loads(spec_text))) or "its form"
                raise SpecError(
                    f"{self.path} holds the experiment of another spec: {told}; a spec is fixed "
                    "before its data, so name another folder"
                )
            return
        # A run killed while it wrote its spec has left a part of it, and nothing to lose.
        found = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        if "stages" in found and not any((self.path / "stages").iterdir()):
            found.remove("stages")
        if found - {"spec.json.part"}:
            raise SpecError(f"{self.path} is not empty, and holds no experiment")
        (self.path / "stages").mkdir(parents=True, exist_ok=True)
        write(known, spec_text)

    def stage(self, name: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The record of a stage: as it was written, or run now and written.

        Args:
            name: one of ``STAGES``, or a part of one after a slash.
            run: does the work; plain JSON values.
        """
        where = self._stage(name)
        if not where.exists():
            write(where, sealed(run()))
        # Read back even when just written, so that a resumed run sees the same numbers.
        return read_sealed(where)

    def known(self, name: str) -> dict[str, Any] | None:
        """The record of a stage; None where it is not written yet."""
        where = self._stage(name)
        return read_sealed(where) if where.exists() else None

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
        return read_times(self.path)

    def _stage(self, name: str) -> Path:
        number = STAGES.index(name.partition("/")[0]) + 1
        return self.path / "stages" / f"{number:02d}-{name.replace('/', '-')}.json"


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write that, killed at any moment, is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write(path: Path, data: str | bytes) -> None:
    """Write a :func:`whole` file."""
    with whole(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


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


def read_times(folder: Path) -> dict[str, dict[str, float]]:
    """Seconds of a run by part and name; empty where none are written.

    Raises:
        SpecError: the file is damaged.
    """
    path = folder / "timing.json"
    found = read_json(path) if path.exists() else {}
    for part, values in found.items():
        if not isinstance(values, dict) or not all(
            isinstance(value, int | float) for value in values.values()
        ):
            raise SpecError(f"{path} is damaged: {part!r} holds no numbers by name")
    return found


def sealed(value: Mapping[str, Any]) -> str:
    """An object as JSON, with the hash of what it holds."""
    digest = hashlib.sha256(json_text(value).encode()).hexdigest()
    return json_text({**plain(value), SEAL: digest})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read an object that :func:`sealed` made, without the hash.

    Raises:
        SpecError: it is damaged, or was changed.
    """
    found = read_json(path)
    digest = found.pop(SEAL, None)
    if digest != hashlib.sha256(json_text(found).encode()).hexdigest():
        raise SpecError(f"{path} is damaged: it holds something else than what was written")
    return found


def read_lines(path: Path, *, sha256: str | None = None) -> list[dict[str, Any]]:
    """Read the objects of a file of JSON lines.

    Args:
        path: the file.
        sha256: of its bytes; without it, a line that is still being written is left out.

    Raises:
        SpecError: a line is no object, or the file is not the one with that hash.
    """
    data = path.read_bytes()
    if sha256 is None:
        data = data[: data.rfind(b"\n") + 1]
    elif hashlib.sha256(data).hexdigest() != sha256:
        raise SpecError(f"{path} is damaged: it holds something else than what was written")
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            one = json.loads(line)
        except ValueError as error:
            raise SpecError(f"{path}:{number} is damaged: {error}") from None
        if not isinstance(one, dict):
            raise SpecError(f"{path}:{number} is damaged: it holds no object")
        found.append(one)
    return found


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, says that there is no room on the disk."""
    while error is not None:
        if getattr(error, "errno", None) == errno.ENOSPC or FULL in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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
