"""Which refinements of the kernel baseline pay, on synthetic tasks whose mean rewards are known.

    python benchmarks/study_kernel_variants.py [--batches 300]

Each world draws tasks with features and a mean reward, in batches of 32 with one rollout a task. A
baseline's loss is its mean squared distance from the task's mean reward. Printed is the ratio
(σ² + MSE of the mean of the others) / (σ² + MSE): how many times larger the batch acts. Whatever a
refinement learns, it learns from earlier batches.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

BATCH, WIDTH, CLUSTERS, WARM_UP = 32, 12, 8, 50
GRID = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, np.inf)


class World(NamedTuple):
    """How much of a task's mean its cluster tells, and how fast the policy moves all means."""

    name: str
    told: float
    drift: float


WORLDS = (
    World("clusters tell nearly all", 0.9, 0.0),
    World("clusters tell a little", 0.3, 0.0),
    World("clusters tell nothing", 0.0, 0.0),
    World("nearly all, and the policy moves", 0.9, 0.01),
)


def batches(world: World, count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLUSTERS, WIDTH))
    effect = rng.normal(size=CLUSTERS)
    for step in range(count):
        which = rng.integers(CLUSTERS, size=BATCH)
        x = centres[which] + 0.7 * rng.normal(size=(BATCH, WIDTH))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        own = rng.normal(size=BATCH)
        logit = 1.5 * (world.told**0.5 * effect[which] + (1 - world.told) ** 0.5 * own)
        mu = 1 / (1 + np.exp(-(logit - 2 + 2 * min(1.0, world.drift * step + 0.5))))
        yield x, mu, (rng.random(BATCH) < mu).astype(float)


def weights(cosines: np.ndarray, temperature: Any) -> np.ndarray:
    logits = cosines / temperature
    if cosines.shape[0] == BATCH:
        logits[np.arange(BATCH), np.arange(BATCH)] = -np.inf
    w = np.exp(logits - logits.max(1, keepdims=True))
    return w / w.sum(1, keepdims=True)


def by_effective_size(cosines: np.ndarray, least: float) -> np.ndarray:
    """The lowest temperature from 0.1 on at which each row's weights count at least `least`."""
    low, high = np.full((BATCH, 1), 0.1), np.full((BATCH, 1), 50.0)
    enough = 1 / (weights(cosines, low) ** 2).sum(1, keepdims=True) >= least
    for _ in range(40):
        middle = np.sqrt(low * high)
        large = 1 / (weights(cosines, middle) ** 2).sum(1, keepdims=True) >= least
        low, high = np.where(large, low, middle), np.where(large, middle, high)
    return weights(cosines, np.where(enough, 0.1, high))


def gaussian_process(cosines: np.ndarray, r: np.ndarray, noise: float, signal: float) -> np.ndarray:
    """Leave-one-out prediction, from K + noise and a free constant."""
    k = signal * np.exp((cosines - 1) / 0.5) + 1e3 * signal + noise * np.eye(BATCH)
    q = np.linalg.inv(k)
    return r - (q @ r) / np.diag(q)


def run(world: World, count: int, seed: int) -> dict[str, float]:
    losses: dict[str, list[float]] = {}
    noise = []
    product = square = 0.0
    by_grid = np.zeros(len(GRID))
    bank: list[tuple[np.ndarray, np.ndarray]] = []
    spread = 0.25
    for step, (x, mu, r) in enumerate(batches(world, count, seed)):
        s = x @ x.T
        plain = (r.sum() - r) / (BATCH - 1)
        kernel = weights(s.copy(), 0.1) @ r
        share = min(1.0, max(0.0, product / square)) if square else 0.0
        found = {
            "mean of the others": plain,
            "kernel, T = 0.1": kernel,
            "shrunk": plain + share * (kernel - plain),
            "at least 16 neighbours": by_effective_size(s.copy(), 16) @ r,
            "T from history": weights(s.copy(), GRID[int(by_grid.argmin())]) @ r,
            "Gaussian process": gaussian_process(s, r, 0.6 * spread, 0.4 * spread),
        }
        if bank:
            keys = np.vstack([x, *(old for old, _ in bank)])
            rewards = np.concatenate([r, *(old for _, old in bank)])
            logits = x @ keys.T / 0.1
            logits[np.arange(BATCH), np.arange(BATCH)] = -np.inf
            logits += np.repeat(np.arange(len(bank) + 1), BATCH) * np.log(0.9)
            w = np.exp(logits - logits.max(1, keepdims=True))
            found["bank of 8 batches"] = (w @ rewards) / w.sum(1)
        if step >= WARM_UP:
            noise.append(float((mu * (1 - mu)).mean()))
            for name, b in found.items():
                losses.setdefault(name, []).append(float(((b - mu) ** 2).mean()))
        product = 0.98 * product + float(((r - plain) * (kernel - plain)).sum())
        square = 0.98 * square + float(((kernel - plain) ** 2).sum())
        by_grid = 0.98 * by_grid + [((r - weights(s.copy(), t) @ r) ** 2).sum() for t in GRID]
        bank = [(x, r), *bank][:8]
        spread = 0.98 * spread + 0.02 * float(r.var())
    sigma2 = np.mean(noise)
    base = sigma2 + np.mean(losses["mean of the others"])
    return {name: float(base / (sigma2 + np.mean(loss))) for name, loss in losses.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batches", type=int, default=300)
    options = parser.parse_args()
    for world in WORLDS:
        runs = [run(world, options.batches, seed) for seed in range(8)]
        print(world.name)
        for name in runs[0]:
            values = np.array([r[name] for r in runs])
            error = values.std(ddof=1) / len(values) ** 0.5
            print(f"  {name:<24} {values.mean():.3f} ± {error:.3f}")


if __name__ == "__main__":
    main()
