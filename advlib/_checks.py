"""Checks at the door: what came, what was wanted, and which rows.

Shapes and dtypes are checked for every input. Values are read only where reading is free, in NumPy
arrays and Python sequences; a device array or a traced value is never brought back.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Kind = Literal["float", "int", "bool"]
Values = ArrayLike | Sequence[Any]  # what a public function takes for an array
Column = np.ndarray | jax.Array


class AdvantageWarning(UserWarning):
    """The numbers are as specified, and probably not what was meant."""


def warn(message: str) -> None:
    """Warn at the first line outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("advlib."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, AdvantageWarning, stacklevel=level)


def rows(mask: np.ndarray) -> str:
    """Name the rows where a mask is true: 'row 3', 'rows 3 and 8', 'rows 0, 1, 2 and 17 more'."""
    which = [str(int(i)) for i in np.flatnonzero(mask)]
    if len(which) == 1:
        return f"row {which[0]}"
    if len(which) <= 5:
        return f"rows {', '.join(which[:-1])} and {which[-1]}"
    return f"rows {', '.join(which[:4])} and {len(which) - 4} more"


def is_host(value: Column | None) -> bool:
    """Values can be read without a transfer; so can those of an option not given."""
    return value is None or isinstance(value, np.ndarray)


def column(name: str, value: Values, kind: Kind) -> Column:
    """Bring a (B,) argument to an array of its kind: on the host NumPy, on a device JAX.

    Args:
        name: the argument's name, for messages.
        value: list, NumPy array, JAX array, or whatever offers ``__array__`` or DLPack.
        kind: "float" promotes integers and booleans to float32, keeps float64 where x64 is on;
            "int" gives int32; "bool" takes booleans, and numbers that are 0 or 1.

    Raises:
        TypeError: the values are not of that kind.
        ValueError: the array has not one dimension; a number given as a mask is not 0 or 1; an
            integer does not fit int32.
    """
    result = array(name, value, kind)
    if result.ndim != 1:
        raise ValueError(f"{name} must have one dimension, (B,); got shape {tuple(result.shape)}")
    return result


def array(name: str, value: Values, kind: Kind) -> Column:
    """As :func:`column`, for an argument of any number of dimensions."""
    if isinstance(value, jax.Array):
        return _device_column(name, value, kind)
    return _host_column(name, as_numpy(name, value), kind)


def as_numpy(name: str, value: Any) -> np.ndarray:
    """A host value as NumPy has it; None in a list of numbers becomes NaN: missing."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        if hasattr(value, "__dlpack__"):  # a bfloat16 torch tensor has no NumPy form
            return np.asarray(jnp.from_dlpack(value))
        raise TypeError(f"{name} cannot be read as an array: {error}") from error
    if array.dtype == object and not any(isinstance(item, str | bytes) for item in array.flat):
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            pass
    return array


def _host_column(name: str, array: np.ndarray, kind: Kind) -> np.ndarray:
    dtype = array.dtype
    if kind == "float":
        if not _numeric(dtype):
            raise TypeError(f"{name} must be numbers; got dtype {dtype}{_hint(name)}")
        keep = dtype == np.float64 and jax.config.read("jax_enable_x64")
        with np.errstate(over="ignore"):
            return array.astype(np.float64 if keep else np.float32, copy=False)
    if kind == "bool":
        if dtype.kind == "b":
            return array
        if not _numeric(dtype):
            raise TypeError(f"{name} must be booleans; got dtype {dtype}")
        if not np.isin(array, (0, 1)).all():
            bad = rows(~np.isin(array, (0, 1)))
            raise ValueError(f"{name} must be booleans, or numbers that are 0 or 1; {bad} differ")
        return array.astype(bool)
    if dtype.kind not in "iu":
        if dtype.kind == "f" and np.isnan(array).any():
            raise ValueError(f"{name} has a missing id (NaN or None) in {rows(np.isnan(array))}")
        if array.size or dtype.kind != "f":  # an empty list has no dtype of its own
            raise TypeError(f"{name} must be integers; got dtype {dtype}{_hint(name)}")
    info = np.iinfo(np.int32)
    if array.size and (array.min() < info.min or array.max() > info.max):
        raise ValueError(f"{name} must fit int32; {rows((array < info.min) | (array > info.max))}")
    return array.astype(np.int32, copy=False)


def _device_column(name: str, array: jax.Array, kind: Kind) -> jax.Array:
    dtype = array.dtype
    if kind == "float":
        if not _numeric(dtype):
            raise TypeError(f"{name} must be real numbers; got dtype {dtype}")
        return array if dtype in (jnp.float32, jnp.float64) else array.astype(jnp.float32)
    if kind == "bool":
        return array if dtype.kind == "b" else array != 0
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"{name} must be integers; got dtype {dtype}{_hint(name)}")
    return array if dtype == jnp.int32 else array.astype(jnp.int32)


def _numeric(dtype: np.dtype) -> bool:
    real = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)
    return bool(real) or dtype.kind == "b"


def _hint(name: str) -> str:
    return "; advlib.encode_groups turns any keys into ids" if name.endswith("_ids") else ""


def same_length(first: str, size: int, other: str, value: Column | None) -> None:
    """Refuse two (B,) arguments of different lengths."""
    if value is not None and value.shape[0] != size:
        raise ValueError(
            f"{first} and {other} must have the same length; "
            f"got shapes ({size},) and {tuple(value.shape)}"
        )


def group_count(num_groups: Any, size: int) -> int:
    """A static number of groups; ``size`` where none is given."""
    if num_groups is None:
        return size
    try:
        count = operator.index(num_groups)
    except TypeError:
        raise TypeError(
            f"num_groups must be a Python integer, it sets a shape; got {type(num_groups).__name__}"
        ) from None
    if count < 0 or isinstance(num_groups, bool) or (count == 0 and size > 0):
        raise ValueError(f"num_groups must be at least 1; got {num_groups!r}")
    return count


def one_of(name: str, value: Any, options: Sequence[Any]) -> None:
    """Refuse an option that is not in the list."""
    if value not in options:
        wanted = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {wanted}; got {value!r}")


def number(name: str, value: Any, low: float, high: float = np.inf) -> Any:
    """A real number in [low, high], as a float; a traced or device value passes unread."""
    if isinstance(value, jax.Array):
        return value
    try:
        checked = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number; got {type(value).__name__}") from None
    if not low <= checked <= high:
        limit = f"in [{low:g}, {high:g}]" if high < np.inf else f"at least {low:g}"
        raise ValueError(f"{name} must be {limit}; got {value!r}")
    return checked


def finite_where(name: str, values: np.ndarray, valid: np.ndarray) -> None:
    """Refuse a number that is not finite and not masked."""
    bad = ~np.isfinite(values) & valid
    if bad.any():
        raise ValueError(
            f"{name} must be finite where `where` is true; {rows(bad)}: "
            f"{values[np.flatnonzero(bad)[0]]}. A missing or failed measurement is masked with "
            f"where=False, never filled in"
        )
    with np.errstate(over="ignore"):
        if valid.any() and np.isinf(np.ptp(values[valid])):
            raise ValueError(
                f"{name} span more than {values.dtype} can hold: from {values[valid].min()} to "
                f"{values[valid].max()}"
            )


def ids_in_range(name: str, ids: np.ndarray, valid: np.ndarray, count: int, low: int = 0) -> None:
    """Refuse an id outside [low, count) in a valid row."""
    bad = ((ids < low) | (ids >= count)) & valid
    if bad.any():
        raise ValueError(
            f"{name} must lie in [{low}, {count}); {rows(bad)}: {ids[np.flatnonzero(bad)[0]]}"
            f"{_hint(name)}"
        )


def lossless(
    name: str, given: np.ndarray, used: np.ndarray, ids: np.ndarray, valid: np.ndarray
) -> None:
    """Warn where rounding to float32 changes the differences inside a group."""
    exact = given.astype(np.float64)
    error = np.abs(exact - used.astype(np.float64))
    error[~valid] = 0
    if not error.any():
        return
    size = int(ids[valid].max()) + 1
    high, low, worst = np.full(size, -np.inf), np.full(size, np.inf), np.zeros(size)
    np.maximum.at(high, ids[valid], exact[valid])
    np.minimum.at(low, ids[valid], exact[valid])
    np.maximum.at(worst, ids[valid], error[valid])
    with np.errstate(invalid="ignore"):
        spread, magnitude = high - low, np.maximum(np.abs(high), np.abs(low))
    lost = (worst > 1e-4 * spread) & (spread > 4 * np.finfo(np.float64).eps * magnitude)
    if lost.any():
        bad = rows(lost[np.where(valid, ids, 0)] & valid)
        warn(
            f"{name} lose precision as float32: {bad} differ from their group by less than float32 "
            f"can tell. Subtract a common offset first, or enable x64 "
            f'(jax.config.update("jax_enable_x64", True)) and pass float64'
        )


def finite_tokens(name: str, values: Column, mask: Column | None) -> None:
    """Refuse a host value that is not finite on a trained token."""
    if not (is_host(values) and is_host(mask)):
        return
    bad = ~np.isfinite(values)
    if mask is not None:
        bad &= np.asarray(mask)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must be finite on trained tokens; {name}{list(where)} is {values[where]}, "
            f"{int(bad.sum())} such in all"
        )
