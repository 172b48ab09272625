"""Checks of options that several files share, and what an optional package needs."""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from advlib import _checks

__all__ = ["count", "dtype_of", "finite_number", "needed", "promoting", "shared", "token_ids"]

Made = TypeVar("Made")


def count(name: str, value: Any, low: int) -> int:
    """An integer of at least ``low``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}") from None
    if number < low:
        raise ValueError(f"{name} must be at least {low}; got {number}")
    return number


def finite_number(name: str, value: Any) -> float:
    """A number of at least 0 that a loss can be multiplied by."""
    number = float(_checks.number(name, value, 0.0))
    if number == math.inf:
        raise ValueError(f"{name} must be finite; got {value!r}")
    return number


def token_ids(name: str, ids: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Distinct token ids, sorted, each inside the vocabulary."""
    numbers = tuple(sorted({count(name, token, 0) for token in ids}))
    if numbers and numbers[-1] >= vocab_size:
        raise ValueError(f"{name} must lie in [0, {vocab_size}); got {numbers[-1]}")
    return numbers


def needed(module: str, purpose: str, extra: str = "train") -> ModuleType:
    """Import an optional package, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module.split('.')[0]}: pip install 'advlib[{extra}]'"
        ) from error


def dtype_of(value: Any) -> Any:
    """A dtype to compute in, from its name, from itself or from NumPy's scalar type; None stays."""
    if value is None:
        return None
    try:
        dtype = jnp.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"compute_dtype must be such as 'bfloat16'; got {value!r}")
    return dtype


def shared(build: Callable[..., Made]) -> Callable[..., Made]:
    """One compiled function for all callers with equal options.

    What is given to the compiled function, such as parameters and frozen weights, is not held;
    an optimizer and a loss, which are options, are, until sixteen others were asked for.
    """
    known = functools.lru_cache(maxsize=16)(build)

    @functools.wraps(build)
    def found(*options: Any) -> Made:
        try:
            hash(options)
        except TypeError:  # a loss or an optimizer of the caller's own kind
            return build(*options)
        return known(*options)

    return found


@contextmanager
def promoting() -> Iterator[None]:
    """Let policies and optimizers promote dtypes, which the caller may forbid for his own code."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
