"""Shrinking the kernel towards the mean of the others, where the truth is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import advlib
from tests.test_kernel import close, draw

BATCH = 32


def world(told: float, count: int, seed: int) -> Any:
    """Batches of tasks in clusters; `told`: the share of a task's logit that its cluster tells."""
    rng = np.random.default_rng(seed)
    centres, effect = rng.normal(size=(6, 12)), np.array([-2.0, -1, -0.3, 0.3, 1, 2])
    for _ in range(count):
        which = rng.integers(6, size=BATCH)
        x = (centres[which] + 0.6 * rng.normal(size=(BATCH, 12))).astype(np.float32)
        own = rng.normal(size=BATCH)
        mu = 1 / (1 + np.exp(-1.5 * (told**0.5 * effect[which] + (1 - told) ** 0.5 * own)))
        yield x, mu, (rng.random(BATCH) < mu).astype(np.float32)


def losses(told: float, seed: int, warm_up: int = 60, count: int = 260) -> np.ndarray:
    """Mean squared distance from the tasks' means: of the others' mean, the kernel, shrunk."""
    state = None
    step = jax.jit(lambda x, r, state: advlib.gs1_shrunk(x, r, state))
    found = []
    for i, (x, mu, r) in enumerate(world(told, count, seed)):
        shrunk = step(x, r, state)
        state = shrunk.state
        if i >= warm_up:
            three = (advlib.batch_leave_one_out(r), advlib.gs1(x, r), shrunk.advantages)
            found.append([np.mean((r - np.asarray(a) - mu) ** 2) for a in three])
    return np.mean(found, axis=0)


def test_it_gains_where_the_kernel_knows_something() -> None:
    plain, kernel, shrunk = np.mean([losses(0.9, seed) for seed in range(2)], axis=0)
    assert shrunk < 0.97 * min(plain, kernel)


def test_it_does_no_harm_where_the_kernel_knows_nothing() -> None:
    plain, kernel, shrunk = np.mean([losses(0.0, seed) for seed in range(2)], axis=0)
    assert kernel > 1.1 * plain
    assert shrunk < 1.01 * plain


def test_earlier_batches_in_the_batch_gain_more() -> None:
    """The bank: earlier samples are further rows, with weights that decay with their age."""
    bank: list[tuple[np.ndarray, np.ndarray]] = []
    alone, banked = [], []
    for i, (x, mu, r) in enumerate(world(0.9, 60, 4)):
        if i >= 8:
            alone.append(np.mean((r - np.asarray(advlib.gs1(x, r)) - mu) ** 2))
            rows = np.vstack([x, *(old for old, _ in bank)])
            rewards = np.concatenate([r, *(old for _, old in bank)])
            weights = 0.9 ** np.arange(len(bank) + 1).repeat(BATCH)
            a = np.asarray(advlib.gs1(rows, rewards, weights=weights))[:BATCH]
            banked.append(np.mean((r - a - mu) ** 2))
        bank = [(x, r), *bank][:8]
    assert np.mean(banked) < 0.8 * np.mean(alone)


def test_the_share_is_the_least_squares_one_of_earlier_batches() -> None:
    product = square = 0.0
    state = None
    for x, _, r in world(0.5, 6, 5):
        got = advlib.gs1_shrunk(x, r, state, decay=0.5)
        share = min(1.0, max(0.0, product / square)) if square else 0.0
        close(got.share, share, 1e-5)
        plain, kernel = (np.asarray(f) for f in (advlib.batch_leave_one_out(r), advlib.gs1(x, r)))
        close(got.advantages, (1 - share) * plain + share * kernel, 2e-6)
        product = 0.5 * product + float((plain * (plain - kernel)).sum())
        square = 0.5 * square + float(((plain - kernel) ** 2).sum())
        state = got.state
    close(state.square, square, 1e-4)


def test_own_reward_stays_out() -> None:
    batches = list(world(0.9, 3, 6))
    state = None
    for x, _, r in batches[:2]:
        state = advlib.gs1_shrunk(x, r, state).state
    x, _, r = batches[2]
    before = advlib.gs1_shrunk(x, r, state)
    for i in (0, 1, 17):
        other = r.copy()
        other[i] += 3.0
        after = advlib.gs1_shrunk(x, other, state)
        assert after.share == before.share
        close(after.advantages[i] - before.advantages[i], 3.0, 2e-6)


def test_without_a_difference_there_is_no_share() -> None:
    r = np.array([1.0, 0.0, 0.5, 1.0], np.float32)
    state = None
    for _ in range(3):
        got = advlib.gs1_shrunk(np.ones((4, 2), np.float32), r, state)
        state = got.state
        assert got.share == 0.0
        close(got.advantages, advlib.batch_leave_one_out(r))


def test_masked_weighted_and_sharded() -> None:
    rows, r, where, weights = draw(7)
    rows, weights = rows.astype(np.float32), weights.astype(np.float32)
    state = advlib.Shrinkage(0.4, 1.0)
    poisoned = np.where(where, r, np.nan).astype(np.float32)
    wanted = advlib.gs1_shrunk(rows, poisoned, state, where=where, weights=weights)
    assert np.isfinite(wanted.advantages).all()
    assert np.all(np.asarray(wanted.advantages)[~where] == 0)
    close(wanted.share, 0.4)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    out = advlib.ShrunkGs1(P("data"), P(), advlib.Shrinkage(P(), P()))  # type: ignore[arg-type]
    split = jax.shard_map(
        lambda x, r, w, o: advlib.gs1_shrunk(x, r, state, where=w, weights=o),
        mesh=mesh,
        in_specs=(P("data"),) * 4,
        out_specs=out,
    )
    got = jax.jit(split)(rows, poisoned, where, weights)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        close(a, np.asarray(b), 1e-5)
    slope = jax.grad(
        lambda r: jnp.sum(advlib.gs1_shrunk(rows, r, state, where=where).advantages ** 2)
    )(jnp.asarray(poisoned))
    assert np.isfinite(slope).all()


def test_decay_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\]"):
        advlib.gs1_shrunk(np.ones((2, 1)), [0.0, 1.0], decay=1.5)
