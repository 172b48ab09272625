"""Arrays that a run reads and does not save, as a short text by which they are known again."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["fingerprint"]


def fingerprint(tree: Any) -> str | None:
    """A hash of names, dtypes, shapes and bits; None for a tree without arrays.

    The arrays stay on their devices: each gives one sum of integers, which is exact and the same
    however it is split.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        return None
    digest = hashlib.sha256()
    for path, leaf in leaves:
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        told = f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape} {int(_mixed(array))}\n"
        digest.update(told.encode())
    return digest.hexdigest()[:16]


@jax.jit
def _mixed(array: Array) -> Array:
    """Σ over elements of their bits, scrambled with their places, modulo 2³²."""
    bits = array
    if array.dtype != bool:
        unsigned = np.dtype(f"uint{8 * min(array.dtype.itemsize, 4)}")
        bits = jax.lax.bitcast_convert_type(array, unsigned)
    mixed = bits.astype(jnp.uint32)
    for axis in range(bits.ndim):
        place = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        mixed = (mixed ^ (place + 1)) * np.uint32(0x85EBCA6B)
        mixed ^= mixed >> 15
    return jnp.sum(mixed, dtype=jnp.uint32)
