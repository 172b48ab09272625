"""Parameters on disk: arrays by name, known by their hash."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from advlib import diagnostics
from advlib.experiments._folder import whole
from advlib.experiments.reading import SpecError


def save_params(path: Path, params: Any) -> str:
    """Write parameters as an NPZ archive of arrays; returns their hash."""
    arrays = named(params)
    stored = {name: _storable(array) for name, array in arrays.items()}
    with whole(path) as file:
        np.savez(file, allow_pickle=False, **stored)
    return diagnostics.content_hash(arrays)


def load_params(path: Path, like: Any, *, sha256: str) -> Any:
    """Read parameters back into the structure of others.

    Args:
        path: the archive.
        like: parameters of the same names, shapes and dtypes.
        sha256: that :func:`save_params` returned.

    Raises:
        SpecError: it is damaged, or names, shapes or dtypes are not those of ``like``.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise SpecError(f"{path} is damaged: {error}") from None
    wanted, read = named(like), {}
    for name, array in wanted.items():
        found = arrays.get(name)
        stored = _storable(array)
        if found is None or found.shape != stored.shape or found.dtype != stored.dtype:
            raise SpecError(f"{path}: {name} must be {array.dtype} of shape {array.shape}")
        read[name] = found.view(array.dtype)
    if diagnostics.content_hash(read) != sha256:
        raise SpecError(f"{path} is damaged: it holds other parameters than those written")
    leaves = [jax.numpy.asarray(array) for array in read.values()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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
