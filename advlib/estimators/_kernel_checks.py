"""Checks at the door of the kernel baselines: features of either kind, and weights."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from advlib import _checks
from advlib._batch import FlatBatch


def on_host(name: str, value: Any) -> Any:
    """A device array as NumPy has it; anything else as it came."""
    if not isinstance(value, jax.Array):
        return value
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"{name} are traced, and features are a SciPy matrix, which is computed on the host: "
            "call outside jit, or pass features.toarray()"
        )
    return np.asarray(value)


def sparse_rows(features: Any) -> Any:
    """A SciPy matrix of numbers as CSR without repeated entries; the one given is not changed."""
    if features.dtype.kind not in "biuf":
        raise TypeError(f"features must be numbers; got dtype {features.dtype}")
    rows = features.tocsr()
    if rows.ndim != 2:
        raise ValueError(f"features must have two dimensions, (B, D); got shape {rows.shape}")
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def finite_rows(features: Any, valid: np.ndarray) -> Any:
    """Refuse a valid row that is not finite; a masked one becomes a row of zeros."""
    dense = isinstance(features, np.ndarray)
    finite = np.isfinite(features if dense else features.data)
    if finite.all():
        return features
    bad = np.zeros(features.shape[0], bool)
    if dense:
        bad |= ~finite.all(axis=1)
    else:
        bad[np.searchsorted(features.indptr, np.flatnonzero(~finite), side="right") - 1] = True
    if (bad & valid).any():
        raise ValueError(
            f"features must be finite where `where` is true; {_checks.rows(bad & valid)} are not"
        )
    if dense:
        return np.where(bad[:, None], 0, features).astype(features.dtype)
    emptied = features.copy()
    emptied.data[np.repeat(bad, np.diff(features.indptr))] = 0
    return emptied


def check_weights(batch: FlatBatch) -> None:
    """Refuse negative weights, and say so where no sample has another one to be compared with."""
    votes = batch.valid
    if batch.columns[1] is not None:
        weights = np.asarray(batch.columns[1])
        bad = votes & (weights < 0)
        if bad.any():
            raise ValueError(
                f"weights must be at least 0; {_checks.rows(bad)}: {weights[np.argmax(bad)]}"
            )
        votes = votes & (weights > 0)
    if not batch.size or votes.sum() > 1 or (votes.sum() == 1 and batch.valid.sum() > 1):
        return
    _checks.warn(
        f"nothing to compare with: {batch.valid.sum()} of {batch.size} samples are valid and "
        f"{votes.sum()} of these have any weight, so this step carries no signal"
    )
