"""Two implementations on one fixed batch: the same numbers, or not, and a record of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks


class Tolerance(NamedTuple):
    """How far a candidate may be off: |candidate - reference| <= atol + rtol |reference|.

    Attributes:
        atol: absolute part.
        rtol: relative part.
        min_cosine: smallest cosine between the two arrays, or None.
    """

    atol: float
    rtol: float
    min_cosine: float | None = None


TOLERANCES = {
    "advantages": Tolerance(atol=1e-6, rtol=1e-5),
    "loss": Tolerance(atol=1e-6, rtol=1e-5),
    "gradient": Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999),
}
"""Tolerances for three usual quantities; the advantages' are those of the loss."""


class Comparison(NamedTuple):
    """One array against its reference.

    Attributes:
        passed: every element is within the tolerance, and the cosine is large enough.
        max_abs_error: largest absolute difference.
        reference_max_abs: largest magnitude in the reference.
        relative_l2_error: length of the difference over the length of the reference; None where the
            reference is all zero.
        cosine: of the two arrays; None where one of them is all zero. Then both must be within
            ``atol`` of zero.
        not_finite: elements that are NaN or infinite on either side; any of them fails.
        tolerance: what was allowed.
    """

    passed: bool
    max_abs_error: float | None
    reference_max_abs: float | None
    relative_l2_error: float | None
    cosine: float | None
    not_finite: int
    tolerance: Tolerance


class Preflight(NamedTuple):
    """The record of a preflight.

    Attributes:
        passed: every comparison passed.
        comparisons: by name.
        inputs_sha256: hash of the inputs' names, dtypes, shapes and contents; None where no inputs
            were given.
    """

    passed: bool
    comparisons: dict[str, Comparison]
    inputs_sha256: str | None

    def to_json(self) -> str:
        """The record as JSON text, keys in order."""
        record = {
            "passed": self.passed,
            "inputs_sha256": self.inputs_sha256,
            "comparisons": {
                name: {**one._asdict(), "tolerance": one.tolerance._asdict()}
                for name, one in self.comparisons.items()
            },
        }
        return json.dumps(record, indent=2, sort_keys=True, allow_nan=False)


def correctness_preflight(
    candidate: Mapping[str, Any],
    reference: Mapping[str, Any],
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
    *,
    inputs: Mapping[str, Any] | None = None,
) -> Preflight:
    """Compare what two implementations make of the same batch.

    Args:
        candidate: arrays of numbers by name, such as advantages, loss, gradient.
        reference: arrays of the same names and shapes.
        tolerances: one for each of these names; others are not used.
        inputs: the fixed batch, arrays by name, for the content hash.

    Returns:
        A :class:`Preflight`. Errors are measured in float64.

    Raises:
        TypeError: an array does not hold numbers.
        ValueError: names or shapes differ, a name has no tolerance, there is nothing to compare.
    """
    if not reference:
        raise ValueError("reference must hold at least one array; got none")
    if set(candidate) != set(reference):
        odd = sorted(set(candidate) ^ set(reference))[0]
        where = "reference" if odd in candidate else "candidate"
        raise ValueError(f"candidate and reference must have the same names; {where} lacks {odd!r}")
    comparisons = {}
    for name in reference:
        if name not in tolerances:
            raise ValueError(f"tolerances must hold one for {name!r}")
        comparisons[name] = _compare(
            name, _numbers(name, candidate[name]), _numbers(name, reference[name]), tolerances[name]
        )
    passed = all(comparison.passed for comparison in comparisons.values())
    return Preflight(passed, comparisons, None if inputs is None else content_hash(inputs))


def content_hash(arrays: Mapping[str, Any]) -> str:
    """SHA-256 of arrays: their names, dtypes, shapes and contents.

    Independent of the order of the names, of memory layout and byte order.

    Args:
        arrays: by name; anything that NumPy reads as numbers, booleans or text.

    Returns:
        64 hexadecimal digits.

    Raises:
        TypeError: an array holds Python objects.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.hasobject:
            raise TypeError(f"inputs[{name!r}] must hold numbers or text; got Python objects")
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        header = json.dumps([name, array.dtype.name, list(array.shape)])
        digest.update(f"{len(header)}:{header}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _numbers(name: str, value: Any) -> np.ndarray:
    array = _checks.as_numpy(name, value)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} must be numbers; got dtype {array.dtype}")
    return array.astype(np.float64)


def _compare(
    name: str, candidate: np.ndarray, reference: np.ndarray, tolerance: Tolerance
) -> Comparison:
    if candidate.shape != reference.shape:
        raise ValueError(
            f"{name} must have the shape of its reference, {reference.shape}; got {candidate.shape}"
        )
    if not reference.size:
        raise ValueError(f"{name} must hold at least one number; got shape {reference.shape}")
    bad = int((~np.isfinite(candidate) | ~np.isfinite(reference)).sum())
    if bad:
        return Comparison(False, None, None, None, None, bad, tolerance)
    difference = np.abs(candidate - reference)
    within = bool((difference <= tolerance.atol + tolerance.rtol * np.abs(reference)).all())
    lengths = [float(np.linalg.norm(array)) for array in (candidate, reference)]
    cosine = None
    if min(lengths) > 0:
        cosine = float(np.vdot(candidate / lengths[0], reference / lengths[1]))
        passed = within and (tolerance.min_cosine is None or cosine >= tolerance.min_cosine)
    else:
        largest = max(float(np.abs(candidate).max()), float(np.abs(reference).max()))
        passed = largest <= tolerance.atol
    return Comparison(
        passed,
        float(difference.max()),
        float(np.abs(reference).max()),
        float(np.linalg.norm(difference)) / lengths[1] if lengths[1] else None,
        cosine,
        0,
        tolerance,
    )
