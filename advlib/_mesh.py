"""Where the rows are: mesh axes inside ``shard_map``, and axes of explicit type outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

Axis = str | Sequence[str] | None  # what a caller may say: `axis_name`
Axes = tuple[str, ...]


def split_axes(arrays: Sequence[jax.Array | np.ndarray | None], axis_name: Axis) -> Axes:
    """The mesh axes over which one batch is split inside ``shard_map``.

    Args:
        arrays: the batch.
        axis_name: what the caller said; None to read it off the arrays.

    Raises:
        ValueError: nothing is said, and inside ``shard_map(check_vma=False)`` nothing can be read.
    """
    if axis_name is not None:
        return (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if not manual:
        return ()
    varying = set().union(*(_varying(array) for array in arrays))
    if not varying and not _varying(jax.lax.axis_index(manual[0])):
        raise ValueError(
            "inside shard_map(check_vma=False) it cannot be seen over which mesh axes the batch is "
            f"split: pass axis_name (of {manual}), or axis_name=() when no group spans devices"
        )
    return tuple(axis for axis in manual if axis in varying)


def _varying(array: jax.Array | np.ndarray | None) -> frozenset[str]:
    if not isinstance(array, jax.core.Tracer):
        return frozenset()
    kind = jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)


def across(axes: Axes) -> int:
    """How many shards the axes make."""
    return int(np.prod([jax.lax.axis_size(axis) for axis in axes], initial=1))


def explicit_sharding(arrays: Sequence[jax.Array | np.ndarray | None]) -> NamedSharding | None:
    """The first sharding over a mesh axis of explicit type, where sharding is part of the type."""
    for array in arrays:
        if isinstance(array, jax.Array):
            sharding = jax.typeof(array).sharding
            if AxisType.Explicit in sharding.mesh.axis_types and any(sharding.spec):
                return sharding
    return None


def automatic(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    sharding: NamedSharding | None,
    specs: Any,
) -> Any:
    """Call a function whose inner layout is left to the compiler: groups need not follow shards.

    Args:
        function: the function.
        arguments: its positional arguments.
        sharding: from :func:`explicit_sharding`; None calls the function as it is.
        specs: how each result is split.
    """
    if sharding is None:
        return function(*arguments)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(sharding.mesh, spec),
        specs,
        is_leaf=lambda spec: isinstance(spec, PartitionSpec),
    )
    return jax.sharding.auto_axes(function, out_sharding=shardings)(*arguments)
