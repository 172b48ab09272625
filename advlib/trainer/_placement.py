"""Where parameters and batches live on a mesh of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from advlib.trainer._options import count

__all__ = [
    "cast",
    "constrained",
    "make_mesh",
    "place_batch",
    "place_state",
    "replicated",
    "state_shardings",
]

Tree = TypeVar("Tree")
ROWS = PartitionSpec(("data", "shard"))


def make_mesh(shard: int = 1, *, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh over which batches are split, and parameters over some of it.

    Args:
        shard: over how many devices each parameter is split. 1 keeps a copy on every device (data
            parallel); the number of devices keeps one copy in all (fully sharded).
        devices: the devices, of all processes. Default: all there are.

    Returns:
        A mesh with axes ``data`` and ``shard``; the rows of a batch are split over both.

    Raises:
        TypeError, ValueError: ``shard`` does not divide the number of devices.
    """
    count("shard", shard, 1)
    devices = jax.devices() if devices is None else devices
    if len(devices) % shard:
        raise ValueError(f"shard must divide the number of devices, {len(devices)}; got {shard}")
    return jax.make_mesh(
        (len(devices) // shard, shard),
        ("data", "shard"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices,
    )


def state_shardings(tree: Any, mesh: Mesh) -> Any:
    """How each array of a state is split: its longest axis that the shards divide, or none."""
    shards = mesh.shape["shard"]

    def sharding(array: Any) -> NamedSharding:
        shape = np.shape(array)
        even = [axis for axis, size in enumerate(shape) if size and size % shards == 0]
        if shards == 1 or not even:
            return NamedSharding(mesh, PartitionSpec())
        longest = max(even, key=lambda axis: shape[axis])
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "shard"))

    return jax.tree.map(sharding, tree)


def place_state(tree: Tree, mesh: Mesh | None) -> Tree:
    """Put parameters or a state onto a mesh; every process holds the same values before."""
    return tree if mesh is None else jax.tree.map(_put, tree, state_shardings(tree, mesh))


def place_batch(tree: Tree, mesh: Mesh | None) -> Tree:
    """Split arrays (B, ...) by rows over a mesh; every process holds all rows before.

    Raises:
        ValueError: the number of devices does not divide B.
    """
    if mesh is None:
        return tree
    for array in jax.tree.leaves(tree):
        if array.shape[0] % mesh.size:
            raise ValueError(
                f"a batch of {array.shape[0]} rows cannot be split over {mesh.size} devices"
            )
    sharding = NamedSharding(mesh, ROWS)
    return jax.tree.map(lambda array: _put(array, sharding), tree)


def replicated(tree: Tree, mesh: Mesh | None) -> Tree:
    """Inside jit: every device gets all of it."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))


def constrained(tree: Tree, mesh: Mesh | None) -> Tree:
    """Inside jit: a state that leaves a step lies as the one that came in."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, state_shardings(tree, mesh))


def cast(params: Tree, dtype: Any) -> Tree:
    """Floating arrays in another dtype; None leaves them."""
    if dtype is None:
        return params

    def one(array: Any) -> Any:
        return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array

    return jax.tree.map(one, params)


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
