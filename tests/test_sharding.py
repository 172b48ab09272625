"""The same numbers on eight devices as on one."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import advlib
from advlib import masking
from tests import table
from tests.table import NUM_GROUPS, ROWS, Batch, Row, outputs

pytestmark = pytest.mark.filterwarnings("ignore::advlib.AdvantageWarning")

SIZE = 16
every_row = pytest.mark.parametrize("row", ROWS, ids=str)
# One of each way to compute, for the tests that compile most.
KINDS = (
    "leave_one_out",
    "leave_one_out[normalize]",
    "grpo[scale=batch]",
    "max_rl[fallback=batch_mean]",
    "batch_mean",
    "gar[candidates]",
    "rank_margin[candidates]",
    "win_rate",
)
every_kind = pytest.mark.parametrize("row", [r for r in ROWS if r.name in KINDS], ids=str)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("data",))


@pytest.fixture(scope="module")
def grid() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "data"))


def drawn(row: Row, seed: int) -> Batch:
    """A batch whose groups, and candidates, span devices of two rows each."""
    rng = np.random.default_rng(seed)
    num_groups = NUM_GROUPS[SIZE]
    b = Batch(
        rewards=rng.choice([0.0, 0.1, 0.85, 1.0], SIZE).astype(np.float32),
        ids=rng.integers(num_groups, size=SIZE).astype(np.int32),
        where=rng.random(SIZE) < 0.8,
        tiers=rng.integers(-1, 4, SIZE).astype(np.int32),
        margins=rng.choice([0.25, 0.5, 1.0], (num_groups, 3)).astype(np.float32),
        hacks=rng.random(SIZE) < 0.2,
        candidates=np.arange(SIZE, dtype=np.int32),
    )
    if row.needs_candidates:
        b = table.tied(b._replace(candidates=rng.integers(9, size=SIZE).astype(np.int32)))
    return b


def specs(rows: P) -> Batch:
    return Batch(*(rows if name in table.BY_ROW else P() for name in Batch._fields))


def out_specs(row: Row, rows: P) -> Any:
    if row.name.startswith("gar"):
        return type(row.call(advlib, drawn(row, 0)))(rows, rows, rows, P())
    return rows


@functools.cache
def over(mesh: Mesh, row: Row, rows: P) -> Any:
    return jax.jit(
        jax.shard_map(
            lambda b: row.call(advlib, b),
            mesh=mesh,
            in_specs=(specs(rows),),
            out_specs=out_specs(row, rows),
        )
    )


def assert_equal(got: Any, wanted: Any, atol: float) -> None:
    for g, w in zip(outputs(got), outputs(wanted), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=atol)


@every_row
def test_shard_map_with_groups_that_span_devices(row: Row, mesh: Mesh) -> None:
    sharded = over(mesh, row, P("data"))
    for seed in range(5):
        b = drawn(row, seed)
        assert_equal(sharded(b), row.call(advlib, b), table.tolerance(row, b))


@every_kind
def test_shard_map_over_two_axes(row: Row, grid: Mesh) -> None:
    sharded = over(grid, row, P(("replica", "data")))
    replicated = over(grid, row, P("data"))
    for seed in range(2):
        b = drawn(row, seed)
        wanted = row.call(advlib, b)
        assert_equal(sharded(b), wanted, table.tolerance(row, b))
        assert_equal(replicated(b), wanted, table.tolerance(row, b))


@every_row
def test_a_shard_without_a_valid_sample_takes_part(row: Row, mesh: Mesh) -> None:
    b = drawn(row, 1)
    b = b._replace(where=b.where & (np.arange(SIZE) // 2 != 3))
    poisoned = b._replace(rewards=np.where(b.where, b.rewards, np.nan).astype(np.float32))
    got = over(mesh, row, P("data"))(poisoned)
    assert_equal(got, row.call(advlib, b), table.tolerance(row, b))


@pytest.mark.parametrize("row", [row for row in ROWS if row.constant_is_zero], ids=str)
def test_constant_groups_stay_exactly_zero(row: Row, mesh: Mesh) -> None:
    for value in table.CONSTANTS:
        b = drawn(row, 2)._replace(
            rewards=np.full(SIZE, value, np.float32),
            tiers=np.zeros(SIZE, np.int32),
            hacks=np.zeros(SIZE, np.bool_),
            where=np.ones(SIZE, np.bool_),
            ids=np.zeros(SIZE, np.int32),
        )
        got = table.advantages(over(mesh, row, P("data"))(b))
        assert np.all(np.asarray(got) == 0.0)


@every_row
def test_global_arrays_under_jit(row: Row, mesh: Mesh) -> None:
    b = drawn(row, 3)
    placed = Batch(
        *(
            jax.device_put(a, NamedSharding(mesh, spec))
            for a, spec in zip(b, specs(P("data")), strict=True)
        )
    )
    got = jax.jit(lambda b: row.call(advlib, b))(placed)
    assert_equal(got, row.call(advlib, b), table.tolerance(row, b))


@every_kind
def test_explicit_mesh_axes(row: Row) -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    b = drawn(row, 3)
    placed = Batch(
        *(
            jax.device_put(a, NamedSharding(mesh, spec))
            for a, spec in zip(b, specs(P("data")), strict=True)
        )
    )
    with jax.set_mesh(mesh):
        got = jax.jit(lambda b: row.call(advlib, b))(placed)
        assert_equal(got, row.call(advlib, b), table.tolerance(row, b))
        assert_equal(row.call(advlib, placed), row.call(advlib, b), table.tolerance(row, b))


def test_unchecked_shard_map_wants_to_be_told(mesh: Mesh) -> None:
    rewards, ids = np.arange(16, dtype=np.float32), np.arange(16, dtype=np.int32) % 3

    def sharded(**options: Any) -> Any:
        return jax.shard_map(
            lambda r, g: advlib.group_mean(r, g, num_groups=3, **options),
            mesh=mesh,
            in_specs=(P("data"), P("data")),
            out_specs=P("data"),
            check_vma=False,
        )

    with pytest.raises(ValueError, match="axis_name"):
        sharded()(rewards, ids)
    wanted = advlib.group_mean(rewards, ids)
    np.testing.assert_allclose(sharded(axis_name="data")(rewards, ids), wanted, atol=1e-5)


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.name in KINDS and r.signal == "rewards"], ids=str
)
def test_gradients_cross_devices(row: Row, mesh: Mesh) -> None:
    sharded = over(mesh, row, P("data"))
    b = drawn(row, 4)
    weights = np.cos(np.arange(SIZE, dtype=np.float32))

    def slope(function: Any) -> np.ndarray:
        def loss(rewards: jax.Array) -> jax.Array:
            return jnp.sum(table.advantages(function(b._replace(rewards=rewards))) * weights)

        return np.asarray(jax.jit(jax.grad(loss))(b.rewards))

    one = slope(lambda b: row.call(advlib, b))
    scale = max(1.0, float(np.abs(one).max()))
    np.testing.assert_allclose(slope(sharded), one, rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("spec", [P("data"), P(None, "data")], ids=["batch", "time"])
@pytest.mark.parametrize("options", [{}, {"discount": 0.9, "lam": 0.7, "bootstrap": 0.5}], ids=str)
def test_gae_on_global_arrays(spec: P, options: dict[str, float], mesh: Mesh) -> None:
    rng = np.random.default_rng(0)
    r, v = (rng.normal(size=(8, 64)).astype(np.float32) for _ in range(2))
    mask = rng.random((8, 64)) < 0.7
    wanted = advlib.gae(r, v, mask=mask, **options)
    placed = [jax.device_put(a, NamedSharding(mesh, spec)) for a in (r, v, mask)]
    got = jax.jit(lambda r, v, m: advlib.gae(r, v, mask=m, **options))(*placed)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


def test_gae_under_shard_map_with_the_batch_sharded(mesh: Mesh) -> None:
    rng = np.random.default_rng(1)
    r, v = (rng.normal(size=(8, 33)).astype(np.float32) for _ in range(2))
    mask = rng.random((8, 33)) < 0.7
    sharded = jax.shard_map(
        lambda r, v, m: advlib.gae(r, v, mask=m),
        mesh=mesh,
        in_specs=(P("data"), P("data"), P("data")),
        out_specs=P("data"),
    )
    wanted = advlib.gae(r, v, mask=mask)
    np.testing.assert_allclose(jax.jit(sharded)(r, v, mask), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ddof", [0, 1])
def test_whitening_across_shards(ddof: int, mesh: Mesh) -> None:
    rng = np.random.default_rng(2)
    x = (3.0 + rng.normal(size=(8, 5))).astype(np.float32)
    mask = rng.random((8, 5)) < 0.6
    mask[3] = False
    x[~mask] = np.nan
    sharded = jax.shard_map(
        lambda x, m: masking.masked_whiten(x, m, ddof=ddof),
        mesh=mesh,
        in_specs=(P("data"), P("data")),
        out_specs=P("data"),
    )
    wanted = masking.masked_whiten(x, mask, ddof=ddof)
    np.testing.assert_allclose(jax.jit(sharded)(x, mask), wanted, rtol=0, atol=2e-6)


def test_br_52_whitening_two_shards(mesh: Mesh) -> None:
    two = Mesh(mesh.devices[:2], ("data",))
    sharded = jax.shard_map(
        lambda x, m: masking.masked_whiten(x, m, ddof=0),
        mesh=two,
        in_specs=(P("data"), P("data")),
        out_specs=P("data"),
    )
    x = np.array([1.0, 2.0, 5.0, 8.0], np.float32)
    got = jax.jit(sharded)(x, np.ones(4, np.bool_))
    np.testing.assert_allclose(got, [-1.0954, -0.7303, 0.3651, 1.4606], atol=5e-5)


def test_axis_name_can_be_narrowed(grid: Mesh) -> None:
    """Groups may be split over one axis and repeated, as other batches, along the other."""
    rewards = np.arange(16, dtype=np.float32) ** 2
    ids = np.tile(np.array([0, 1, 0, 0, 1, 1, 0, 1], np.int32), 2)
    sharded = jax.shard_map(
        lambda r, g: advlib.leave_one_out(r, g, num_groups=2, axis_name="data"),
        mesh=grid,
        in_specs=(P(("replica", "data")), P(("replica", "data"))),
        out_specs=P(("replica", "data")),
    )
    halves = [advlib.leave_one_out(rewards[i], ids[i]) for i in (slice(8), slice(8, 16))]
    np.testing.assert_allclose(jax.jit(sharded)(rewards, ids), np.concatenate(halves), atol=5e-4)
