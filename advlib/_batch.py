"""One flat batch: from whatever the caller has to arrays that a jitted core takes, and back.

Every public estimator enters here. Host inputs are checked by value and padded with masked rows to
a power of two, so that a batch of another size meets a function that is already compiled; masked
rows change nothing, so the numbers are the same. Device arrays and traced values pass as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from advlib import _checks, _mesh
from advlib._checks import Column, Kind, Values

Entry = tuple[str, Values | None, Kind]  # name, value, kind of a (B,) argument
ROWS: Any = "rows"
GROUPS: Any = "groups"  # what the first axis of a core's result counts


def core(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jit a function whose arrays are positional and whose keyword-only options are static."""
    parameters = inspect.signature(function).parameters.values()
    options = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return jax.jit(function, static_argnames=options)


class FlatBatch(NamedTuple):
    """Arguments of a jitted core, and how to bring its result back.

    Attributes:
        columns: the (B,) data columns, in the core's order; None for an option not given.
        ids: (B,) int32 group ids.
        where: (B,) bool, or None.
        num_groups: groups asked for.
        num_segments: groups the core counts, at least ``num_groups`` on the padded path.
        axes: mesh axes that split the batch inside ``shard_map``.
        size: B before padding.
        sharding: of the rows, where a mesh axis is of explicit type.
    """

    columns: tuple[Column | None, ...]
    ids: Column
    where: Column | None
    num_groups: int
    num_segments: int
    axes: tuple[str, ...]
    size: int
    sharding: NamedSharding | None

    @property
    def on_host(self) -> bool:
        """All values can be read here."""
        return all(_checks.is_host(value) for value in (*self.columns, self.ids, self.where))

    @property
    def valid(self) -> np.ndarray:
        """The rows that `where` leaves, on the host."""
        if isinstance(self.where, np.ndarray):
            return self.where
        return np.ones(self.ids.shape[0], bool)

    def run(
        self, core: Callable[..., Any], *extra: Any, results: Any = ROWS, **options: Any
    ) -> Any:
        """Call ``core(ids, where, *columns, *extra, num_groups=, axes=, **options)``.

        Args:
            core: a jitted function.
            extra: further arrays, not of the rows.
            results: ROWS or GROUPS for each array that the core returns, in its structure.
            options: static options.
        """

        def call(*arrays: Any) -> Any:
            return core(*arrays, num_groups=self.num_segments, axes=self.axes, **options)

        arguments = (self.ids, self.where, *self.columns, *extra)
        specs = None
        if self.sharding is not None:
            layout = {ROWS: self.sharding.spec, GROUPS: PartitionSpec()}
            specs = jax.tree.map(layout.__getitem__, results)
        out = _mesh.automatic(call, arguments, self.sharding, specs)
        wanted = {ROWS: self.size, GROUPS: self.num_groups}
        return jax.tree.map(lambda kind, array: _trim(array, wanted[kind]), results, out)


def flat_batch(
    columns: Sequence[Entry],
    group_ids: Values | None,
    where: Values | None,
    num_groups: int | None,
    axis_name: _mesh.Axis,
) -> FlatBatch:
    """Check the arguments of an estimator and make one batch of them.

    Args:
        columns: (name, value, kind) of each (B,) argument; the first sets B.
        group_ids: (B,) integers, or None for one group.
        where: (B,) booleans, or None.
        num_groups: static; None for B (for 1 without ids).
        axis_name: mesh axes that split the batch; None for all that the inputs vary over.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: shapes differ, an id is out of range, a valid number is not finite.
    """
    first = columns[0][0]
    columns = [(name, _read_once(name, value), kind) for name, value, kind in columns]
    data = tuple(
        None if value is None else _checks.column(name, value, kind)
        for name, value, kind in columns
    )
    assert data[0] is not None, "the first column is never optional"
    size = data[0].shape[0]
    mask = None if where is None else _checks.column("where", where, "bool")
    for name, value in (*zip((entry[0] for entry in columns), data, strict=True), ("where", mask)):
        _checks.same_length(first, size, name, value)
    if group_ids is None:
        ids: Column = np.zeros(size, np.int32)
        count = _checks.group_count(1 if num_groups is None else num_groups, 1)
        axes = _mesh.split_axes((*data, mask), axis_name)
    else:
        ids = _checks.column("group_ids", group_ids, "int")
        _checks.same_length(first, size, "group_ids", ids)
        axes = _mesh.split_axes((*data, ids, mask), axis_name)
        count = _checks.group_count(num_groups, size * _mesh.across(axes))

    batch = FlatBatch(
        data, ids, mask, count, count, axes, size, _mesh.explicit_sharding((*data, ids))
    )
    _check_values(batch, columns)
    return _pad(batch) if batch.on_host else batch


def _read_once(name: str, value: Any) -> Any:
    """A list as an array, so that the checks below need not convert it again."""
    return value if value is None or isinstance(value, jax.Array) else _checks.as_numpy(name, value)


def _check_values(batch: FlatBatch, columns: Sequence[Entry]) -> None:
    if batch.where is not None and not _checks.is_host(batch.where):
        return
    valid = batch.valid
    ids = batch.ids
    if isinstance(ids, np.ndarray):
        _checks.ids_in_range("group_ids", ids, valid, batch.num_groups)
    for (name, given, kind), used in zip(columns, batch.columns, strict=True):
        if kind == "float" and isinstance(used, np.ndarray):
            _checks.finite_where(name, used, valid)
            original = _checks.as_numpy(name, given)
            rounded = original.dtype.kind in "iuf" and original.dtype != used.dtype
            if rounded and isinstance(ids, np.ndarray):
                _checks.lossless(name, original, used, ids, valid)


def warn_if_alone(
    batch: FlatBatch, *, whole_batch: bool = False, has_fallback: bool = False
) -> None:
    """Say so where no sample has another one to be compared with; known for host inputs only.

    Args:
        batch: the arguments of an estimator.
        whole_batch: samples are compared with the whole batch, so that groups of one may stand.
        has_fallback: the estimator can compare them with the batch, if asked.
    """
    if not (batch.size and batch.on_host):
        return
    ids, valid = np.asarray(batch.ids), batch.valid
    counts = np.bincount(ids[valid]) if valid.any() else np.zeros(1, int)
    if (valid.sum() if whole_batch else counts.max()) >= 2:
        return
    what = f"none of the {batch.size} samples has another valid one in its group"
    if whole_batch:
        what = f"{valid.sum()} of {batch.size} samples are valid"
    advice = '; fallback="batch_leave_one_out" compares with the batch' if has_fallback else ""
    _checks.warn(f"nothing to compare with: {what}, so this step carries no signal{advice}")


def _pad(batch: FlatBatch) -> FlatBatch:
    # One group stays one: it is summed as a tree, faster and more exactly than by scatter.
    num_segments = bucket(max(batch.size, batch.num_groups)) if batch.num_groups > 1 else 1
    extra = bucket(batch.size) - batch.size
    if not extra:
        return batch._replace(num_segments=num_segments)
    return batch._replace(
        columns=tuple(None if c is None else np.pad(c, (0, extra)) for c in batch.columns),
        ids=np.pad(batch.ids, (0, extra)),
        where=np.pad(batch.valid, (0, extra)),
        num_segments=num_segments,
    )


def bucket(size: int) -> int:
    """The next power of two, at least 8."""
    return max(8, 1 << (size - 1).bit_length()) if size else 8


def _trim(array: jax.Array, size: int) -> jax.Array:
    if array.shape[0] == size:
        return array
    if isinstance(array, jax.core.Tracer):
        return array[:size]
    # Through the host: a device slice would compile anew for every size.
    return jax.device_put(np.asarray(array)[:size])
