"""Specs from JSON, and the sentences that refuse them."""

from __future__ import annotations

import hashlib
import json
import os
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from advlib.experiments._checking import problems
from advlib.experiments.spec import Spec


class SpecError(ValueError):
    """A spec that cannot be run, and why; the message names the file or the key."""


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Read an experiment from a JSON file.

    Args:
        path: the file. Paths in it are relative to its folder.

    Returns:
        A :class:`Spec` that can be run.

    Raises:
        OSError: the file cannot be read.
        SpecError: it is no such JSON, holds a key that is not known, or a design that cannot do
            what it is for; the message gives every reason.
    """
    return parse_spec(Path(path).read_bytes(), where=str(path))


def parse_spec(text: bytes | str, *, where: str = "spec") -> Spec:
    """Read an experiment from JSON text.

    Args:
        text: one JSON object.
        where: what the messages call it.

    Returns:
        A :class:`Spec` that can be run.

    Raises:
        SpecError: as :func:`read_spec`.
    """
    try:
        json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
        spec = msgspec.json.decode(text, type=Spec)
    except msgspec.ValidationError as error:
        told = str(error).replace(" - at `$", " at `$")
        raise SpecError(f"{where}: {told}" + ("" if "at `$" in told else " at `$`")) from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: wanted one JSON object: {error}") from None
    return check_spec(spec, where=where)


def check_spec(spec: Spec, *, where: str = "spec") -> Spec:
    """Refuse a design that cannot do what it is for.

    Args:
        spec: the experiment.
        where: what the message calls it.

    Returns:
        The same spec.

    Raises:
        SpecError: with every reason.
    """
    found = problems(spec)
    if found:
        raise SpecError(f"{where}: " + "; ".join(found))
    return spec


def demo_spec(*, seed: int = 0) -> Spec:
    """The experiment that ``advlib experiment demo`` runs: three arms on the six templates.

    Args:
        seed: of parameters, questions, samples and orders; the arms' seeds are counted from it.

    Returns:
        A :class:`Spec`.
    """
    text = (resources.files("advlib.experiments") / "demo.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    for part in ("policy", "environment", "warm_start", "calibration"):
        document[part]["seed"] = seed
    document["seeds"] = [seed + nth for nth in range(len(document["seeds"]))]
    return parse_spec(json.dumps(document), where="the demo")


def spec_json(spec: Spec) -> str:
    """A spec as JSON text with every setting in it, the same for equal specs."""
    return json.dumps(msgspec.to_builtins(spec), indent=2, sort_keys=True, allow_nan=False) + "\n"


def spec_hash(spec: Spec) -> str:
    """SHA-256 of :func:`spec_json`, 64 hexadecimal digits."""
    return hashlib.sha256(spec_json(spec).encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _finite(word: str) -> float:
    value = float(word)
    if not isfinite(value):
        raise ValueError(f"{word} is too large")
    return value
