"""What all losses of tokens ask of their arguments."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from advlib import _checks
from advlib._checks import Values

__all__ = ["tokens"]


def tokens(mask: Values | None, **arrays: Values) -> list[Array]:
    """Floats of one shape, in the dtype of the first, and 0 where the mask is False.

    Nothing is broadcast: advantages (B,) against log-probabilities (B, T) give a wrong result
    without an error wherever B equals T.

    Raises:
        TypeError: an array is not of numbers, or the mask not of booleans.
        ValueError: shapes differ.
    """
    read = {name: _checks.array(name, value, "float") for name, value in arrays.items()}
    if mask is not None:
        mask = _checks.array("mask", mask, "bool")
    shapes = {name: tuple(array.shape) for name, array in read.items()}
    if mask is not None:
        shapes["mask"] = tuple(mask.shape)
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{', '.join(shapes)} must have one shape; got {told}")
    dtype = next(iter(read.values())).dtype
    floats = [jnp.asarray(array).astype(dtype) for array in read.values()]
    if mask is None:
        return floats
    # Before any exponential: 0 from above times infinity is NaN on the way back.
    return [jnp.where(mask, array, 0) for array in floats]
