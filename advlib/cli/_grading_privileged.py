"""What only the grader may see: files for every group, and texts of single tasks or groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from advlib.cli._errors import Refusal
from advlib.cli._show import count, some


class Texts(NamedTuple):
    """Privileged texts by name.

    Attributes:
        everywhere: of every group.
        by_task: of the groups of a task.
        by_group: of a group.
        told: what may be told of the files: names, sizes and hashes.
        path: the file of the latter two.
    """

    everywhere: Mapping[str, str] = {}
    by_task: Mapping[str, Mapping[str, str]] = {}
    by_group: Mapping[str, Mapping[str, str]] = {}
    told: tuple[dict[str, Any], ...] = ()
    path: str = ""

    def of(self, group: str, task: str) -> dict[str, str]:
        """Everything for the grader of a group.

        Raises:
            Refusal: two texts have one name.
        """
        found: dict[str, str] = {}
        for texts in (self.everywhere, self.by_task.get(task, {}), self.by_group.get(group, {})):
            if twice := found.keys() & texts.keys():
                raise Refusal(f"group {some([group])}: two privileged texts named {some(twice)}")
            found |= texts
        return found

    def unused(self, groups: Iterable[str], tasks: Iterable[str]) -> Iterator[str]:
        """A warning for what no group asks for."""
        for what, known, wanted in (
            ("task", self.by_task, set(tasks)),
            ("group", self.by_group, set(groups)),
        ):
            if absent := [key for key in known if key not in wanted]:
                yield f"{self.path}: {count(len(absent), what)} not in these files: {some(absent)}"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    text: str
    task: str | None = None
    group: str | None = None


def texts(options: Sequence[str], by_task: str | None) -> Texts:
    """The files of ``--privileged NAME=FILE``, and the one of ``--privileged-by-task FILE``.

    Raises:
        Refusal: no name or no file, a name twice, a file that is not UTF-8, a line that is no such
            text; no message quotes what a file holds.
        OSError: a file cannot be read.
    """
    found: dict[str, str] = {}
    told: list[dict[str, Any]] = []
    for option in options:
        name, equals, path = option.partition("=")
        if not (equals and name and path):
            raise Refusal(f"--privileged {option}: wanted NAME=FILE")
        if name in found:
            raise Refusal(f"--privileged {option}: the name {name} is given twice")
        data = _content(path)
        found[name] = _text(data, f"--privileged {option}: the file")
        told.append(_about(name, data))
    if by_task is None:
        return Texts(found, told=tuple(told))
    data = _content(by_task)
    keyed: dict[str, dict[str, dict[str, str]]] = {"task": {}, "group": {}}
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            _add(keyed, line, f"{by_task}:{number}")
    told.append(_about("--privileged-by-task", data))
    return Texts(found, keyed["task"], keyed["group"], tuple(told), by_task)


def _add(keyed: dict[str, dict[str, dict[str, str]]], data: bytes, where: str) -> None:
    wanted = f"{where}: wanted an object with `name`, `text`, and `task` or `group`, all strings"
    _text(data, where)
    try:
        line = msgspec.json.decode(data, type=_Line)
    except (msgspec.MsgspecError, RecursionError):
        raise Refusal(wanted) from None
    if (line.task is None) == (line.group is None):
        raise Refusal(wanted)
    what, key = ("task", line.task) if line.task is not None else ("group", line.group)
    names = keyed[what].setdefault(str(key), {})
    if line.name in names:
        raise Refusal(f"{where}: {what} {some([key])} has two texts named {some([line.name])}")
    names[line.name] = line.text


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(f"{what} is not UTF-8 text") from None


def _about(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
