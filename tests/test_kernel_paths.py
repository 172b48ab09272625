"""One function, several ways to compute it: tiles, threads, repeated rows, devices; one result."""

from __future__ import annotations

import functools
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from scipy.sparse import csr_array, csr_matrix

import advlib
from advlib.estimators import _kernel_dense, _kernel_host, _kernel_rows
from tests import reference
from tests.test_kernel import TEMPERATURES, close, draw


def recipe(
    rows: np.ndarray,
    rewards: np.ndarray,
    temperature: float,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """The baseline in float64, all pairs at once."""
    norm = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(norm == 0, 1, norm)[:, None]
    o = np.ones(len(rows)) if weights is None else weights.astype(np.float64)
    with np.errstate(divide="ignore"):
        logits = unit @ unit.T / temperature + np.log(o)
    np.fill_diagonal(logits, -np.inf)
    w = np.exp(logits - logits.max(1, keepdims=True))
    return (w @ rewards.astype(np.float64)) / w.sum(1)


def many(seed: int, size: int, distinct: int | None = None, words: int = 400) -> Any:
    """Rows as texts have them: a few words in most rows, most words in a few."""
    rng = np.random.default_rng(seed)
    count = distinct or size
    share = np.minimum(0.9, 3.0 / np.arange(1, words + 1))
    rows = (rng.random((count, words)) < share) * rng.random((count, words))
    rows[rng.random(count) < 0.01] = 0
    if distinct:
        rows = rows[rng.integers(distinct, size=size)]
    rewards = rng.choice([0.0, 1.0, -0.1], size).astype(np.float32)
    return rows, rewards, rng.choice([0.0, 0.5, 1.0, 2.0], size)


@functools.cache
def _core(tile: int) -> Any:
    def run(rows: Any, r: Any, where: Any, weights: Any, temperature: Any) -> Any:
        ids = jnp.zeros(r.shape, jnp.int32)
        return _kernel_dense.baseline(
            ids,
            where,
            r,
            weights,
            rows,
            temperature,
            num_groups=1,
            axes=(),
            fallback="zero",
            advantages=False,
            tile=tile,
        )

    return jax.jit(run)


@pytest.mark.parametrize("tile", [1, 3, 7, 12, 40, 64])
def test_tiles_of_the_dense_path(tile: int) -> None:
    """Tile 1 and 3 start rows whose first tile holds nothing but themselves, or masked samples."""
    rows, r, where, weights = draw(1)
    where[:3] = False
    rows, weights = rows.astype(np.float32), weights.astype(np.float32)
    for temperature in (0.005, 0.1, np.inf):
        got = _core(tile)(rows, r, where, weights, np.float32(temperature))
        wanted = reference.kernel_baseline(
            rows, r, where=where, weights=weights, temperature=temperature
        )
        close(got, wanted, max(2e-6, 5e-8 / temperature))


@pytest.mark.parametrize("tile", [3, 7, 40])
def test_gradients_do_not_depend_on_tiles(tile: int) -> None:
    rows, r, where, weights = draw(2)
    rows, weights = rows.astype(np.float32), weights.astype(np.float32)

    def slope(tile: int) -> Any:
        def loss(rows: Any, r: Any, weights: Any) -> Any:
            b = _core(tile)(rows, r, where, weights, np.float32(0.2))
            return jnp.sum(b * jnp.cos(jnp.arange(40, dtype=jnp.float32)))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(rows, r, weights)

    for got, wanted in zip(slope(tile), slope(64), strict=True):
        close(got, wanted, 2e-5)


@pytest.mark.parametrize("tile", [16, 33])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("distinct", [None, 60])
def test_tiles_and_threads_of_the_host_path(
    tile: int, threads: int, distinct: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kernel_rows, "TILE", tile)
    monkeypatch.setattr(_kernel_host, "TILE", tile)
    monkeypatch.setattr(_kernel_rows, "NUM_FREQUENT", 8)
    monkeypatch.setattr(_kernel_host, "processors", lambda: threads)
    rows, r, weights = many(3, 200, distinct)
    features = csr_array(rows)
    for found in (None, _kernel_rows.repeats(features)):
        unit = _kernel_rows.unit_rows(features, found)
        for temperature in TEMPERATURES:
            got = _kernel_host.kernel_means(unit, r, weights, temperature)
            close(got.reference + got.mean, recipe(rows, r, temperature, weights), 3e-6)
            again = _kernel_host.kernel_means(unit, r, weights, temperature)
            assert again.mean.tobytes() == got.mean.tobytes()


@pytest.mark.parametrize("size", [65, 512, 513, 1100])
@pytest.mark.parametrize("distinct", [None, 30, 0.5])
@pytest.mark.parametrize("temperature", [0.004, 0.1, np.inf])
def test_paths_agree(size: int, distinct: Any, temperature: float) -> None:
    count = int(size * distinct) if distinct == 0.5 else distinct
    rows, r, weights = many(size, size, count)
    wanted = recipe(rows, r, temperature, weights)
    options = {"temperature": temperature, "weights": weights}
    close(advlib.kernel_baseline(csr_matrix(rows), r, **options), wanted, 3e-6)
    tolerance = 1e-5 if temperature >= 0.1 else 3e-5
    close(advlib.kernel_baseline(rows, r, **options), wanted, tolerance)
    on_device = jax.jit(functools.partial(advlib.kernel_baseline, **options))
    close(on_device(jnp.asarray(rows, jnp.float32), r), wanted, tolerance)


def test_one_tile_more_than_fits() -> None:
    rng = np.random.default_rng(4)
    size = _kernel_dense.TILE + 77
    rows = rng.normal(size=(size, 16)).astype(np.float32)
    r = rng.random(size).astype(np.float32)
    where = rng.random(size) < 0.9
    got = advlib.kernel_baseline(rows, r, where=where, temperature=0.3)
    close(got, recipe(rows.astype(np.float64), r, 0.3, where), 3e-6)


@pytest.mark.parametrize("temperature", [0.01, 0.1])
def test_own_reward_stays_out_of_large_batches(temperature: float) -> None:
    for distinct in (None, 40):
        rows, r, _ = many(5, 700, distinct)
        features = csr_matrix(rows)
        before = np.asarray(advlib.kernel_baseline(features, r, temperature=temperature))
        for i in (0, 1, 350, 699):
            other = r.copy()
            other[i] = 1234.5
            after = np.asarray(advlib.kernel_baseline(features, other, temperature=temperature))
            assert after[i].tobytes() == before[i].tobytes()
            assert not np.array_equal(after, before)


def test_constant_rewards_of_repeated_rows_give_exact_zeros() -> None:
    rows, _, weights = many(6, 700, 30)
    for value in (0.1, 1 / 3, 1e8):
        for features in (csr_matrix(rows), rows):
            a = advlib.gs1(features, np.full(700, value, np.float32), weights=weights)
            assert np.all(np.asarray(a) == 0.0)


def test_the_own_share_is_never_subtracted() -> None:
    """One repeated prompt far from all others: at a low temperature its own mean is everything."""
    rows = np.vstack([np.tile([[1.0] + [0.0] * 4], (2, 1)), np.eye(5)[1:].repeat(200, axis=0)])
    r = np.concatenate([[0.25, 0.75], np.zeros(800)]).astype(np.float32)
    b = np.asarray(advlib.kernel_baseline(csr_matrix(rows), r, temperature=0.02))
    close(b[:2], [0.75, 0.25], 1e-7)


@pytest.mark.parametrize("large", [False, True])
def test_sums_over_the_others_of_a_group(large: bool) -> None:
    rng = np.random.default_rng(7)
    group = rng.integers(3 if large else 90, size=400)
    values = rng.normal(size=(400, 2))
    got = _kernel_host.others_in_group(values, group)
    for i in range(400):
        same = (group == group[i]) & (np.arange(400) != i)
        np.testing.assert_allclose(got[i], values[same].sum(0), atol=1e-12)


def test_rows_that_share_a_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, r, _ = many(8, 600, 50)
    wanted = recipe(rows, r, 0.1)
    monkeypatch.setattr(_kernel_rows, "_dense_keys", lambda features: np.zeros(len(features)))
    monkeypatch.setattr(
        _kernel_rows, "_sparse_keys", lambda features: np.arange(features.shape[0]) % 3
    )
    for features in (csr_array(rows), rows):
        found = _kernel_rows.repeats(features)
        for i, kept in enumerate(found.kept[found.group]):
            np.testing.assert_array_equal(rows[i], rows[kept])
        unit = _kernel_rows.unit_rows(features, found)
        got = _kernel_host.kernel_means(unit, r, np.ones(600), 0.1)
        close(got.reference + got.mean, wanted, 3e-6)


def test_repeats_are_found() -> None:
    rows, _, _ = many(9, 600, 50)
    distinct = len(np.unique(rows, axis=0))
    for features in (csr_array(rows), rows, rows.astype(np.float32)):
        assert len(_kernel_rows.repeats(features).kept) == distinct
    alone = _kernel_rows.repeats(csr_array(np.eye(600)))
    assert alone.group is None


def test_rare_and_many_words() -> None:
    """More columns than entries, words of one row only, and words of all rows."""
    rng = np.random.default_rng(10)
    for size in (30, 300, 700):
        columns = rng.choice(1000, (size, 5)) * 1000
        columns[:, :2] = [7, 999_999]
        rows = np.arange(size).repeat(5)
        entries = (rng.random(5 * size), (rows, columns.ravel()))
        features = csr_matrix(entries, shape=(size, 10**6))
        seen = np.unique(features.indices)
        r = rng.random(size).astype(np.float32)
        wanted = recipe(features[:, seen].toarray(), r, 0.1)
        close(advlib.kernel_baseline(features, r), wanted, 3e-6)


def test_memory_on_the_host_is_not_of_pairs() -> None:
    size = 6000
    rows, r, _ = many(11, size, words=300)
    features = csr_matrix(rows)
    for temperature in (0.1, 0.01):
        tracemalloc.start()
        advlib.gs1(features, r, temperature=temperature)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < size * size  # bytes: a quarter of one float32 matrix of pairs


def test_memory_on_a_device_is_not_of_pairs() -> None:
    size = 16384
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((size, 32), (size,))]

    def loss(x: Any, r: Any) -> Any:
        return jnp.sum(advlib.gs1(x, r) ** 2)

    for function in (advlib.gs1, jax.grad(loss, argnums=(0, 1))):
        compiled = jax.jit(function).lower(*shapes).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < size * size // 4


# Under transformations and on many devices.


def test_vmap_is_a_loop() -> None:
    batches = [draw(seed, size=16) for seed in range(3)]
    rows, r, where, _ = (np.stack(part) for part in zip(*batches, strict=True))
    rows = rows.astype(np.float32)
    got = jax.vmap(lambda x, r, w: advlib.gs1(x, r, where=w))(rows, r, where)
    for g, x, y, w in zip(got, rows, r, where, strict=True):
        close(g, advlib.gs1(x, y, where=w))
    by_temperature = jax.vmap(lambda t: advlib.gs1(rows[0], r[0], temperature=t))
    for g, t in zip(by_temperature(jnp.array([0.01, 0.1, 2.0])), (0.01, 0.1, 2.0), strict=True):
        close(g, advlib.gs1(rows[0], r[0], temperature=t), 1e-5)


def test_host_batches_share_programs() -> None:
    rows, r, _, _ = draw(12, size=64)
    rows = rows.astype(np.float32)
    advlib.gs1(rows, r)
    before = _kernel_dense.baseline._cache_size()
    for size in range(40, 65, 3):
        advlib.gs1(rows[:size], r[:size], where=np.ones(size, bool))
    assert _kernel_dense.baseline._cache_size() - before <= 2


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("data",))


def sharded_batch(size: int = 40) -> Any:
    rows, r, where, weights = draw(13, size=size, distinct=25)
    where[5:10] = False  # a whole shard
    return rows.astype(np.float32), r, where, weights.astype(np.float32)


@pytest.mark.parametrize("function", [advlib.gs1, advlib.kernel_baseline], ids=["gs1", "baseline"])
@pytest.mark.parametrize("temperature", [0.02, 0.1])
@pytest.mark.parametrize("check_vma", [True, False])
def test_shards_are_one_batch(
    function: Any, temperature: float, check_vma: bool, mesh: Mesh
) -> None:
    batch = sharded_batch()
    named = {} if check_vma else {"axis_name": "data"}

    def call(x: Any, r: Any, where: Any, weights: Any, **axes: Any) -> Any:
        return function(x, r, where=where, weights=weights, temperature=temperature, **axes)

    split = jax.shard_map(
        functools.partial(call, **named),
        mesh=mesh,
        in_specs=(P("data"),) * 4,
        out_specs=P("data"),
        check_vma=check_vma,
    )
    close(jax.jit(split)(*batch), call(*batch), 1e-5)


def test_shards_over_two_axes_and_one_of_them() -> None:
    grid = Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "data"))
    rows, r, _, _ = sharded_batch()
    for spec, axes in ((P(("replica", "data")), None), (P("data"), None)):
        split = jax.shard_map(
            functools.partial(advlib.gs1, axis_name=axes),
            mesh=grid,
            in_specs=(spec, spec),
            out_specs=spec,
        )
        close(jax.jit(split)(rows, r), advlib.gs1(rows, r), 1e-5)
    halves = jax.shard_map(
        functools.partial(advlib.gs1, axis_name="data"),
        mesh=grid,
        in_specs=(P(("replica", "data")),) * 2,
        out_specs=P(("replica", "data")),
    )
    wanted = [advlib.gs1(rows[part], r[part]) for part in (slice(20), slice(20, 40))]
    close(jax.jit(halves)(rows, r), np.concatenate(wanted), 1e-5)


def test_gradients_cross_shards(mesh: Mesh) -> None:
    rows, r, _, weights = sharded_batch()

    def total(function: Any) -> Any:
        def loss(x: Any, r: Any, w: Any) -> Any:
            return jnp.sum(function(x, r, w) * jnp.cos(jnp.arange(40, dtype=jnp.float32)))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(rows, r, weights)

    def call(x: Any, r: Any, w: Any) -> Any:
        return advlib.gs1(x, r, weights=w, temperature=0.2)

    split = jax.shard_map(call, mesh=mesh, in_specs=(P("data"),) * 3, out_specs=P("data"))
    for got, wanted in zip(total(split), total(call), strict=True):
        close(got, wanted, 2e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_arrays_on_a_mesh(kind: AxisType) -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
    batch = sharded_batch()
    placed = [jax.device_put(a, NamedSharding(mesh, P("data"))) for a in batch]

    def call(x: Any, r: Any, where: Any, weights: Any) -> Any:
        return advlib.gs1(x, r, where=where, weights=weights)

    wanted = call(*batch)
    close(call(*placed), wanted, 1e-5)
    close(jax.jit(call)(*placed), wanted, 1e-5)
