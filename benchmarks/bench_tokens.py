"""GRPO from a reward a response to an advantage a token: 512 prompts x 16 responses x 2,048.

The result alone is 64 MiB, so what bounds everybody is memory; the two floors say by how much.
verl takes what its trainer hands it: token-level rewards, an int64 mask, an index of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import (
    Case,
    Gate,
    Implementation,
    Prepared,
    jax_prepared,
    torch_prepared,
    torch_tensor,
    uids,
)

TITLE = "GRPO, rewards to tokens"
CASE = "grpo_512x16x2048"


def cases(tiny: bool) -> Iterator[Case]:
    prompts, each, tokens = (4, 4, 16) if tiny else (512, 16, 2048)
    rng = np.random.default_rng(20)
    size = prompts * each
    ids = rng.permutation(np.repeat(np.arange(prompts, dtype=np.int32), each))
    rewards = rng.random(size, dtype=np.float32)
    lengths = rng.integers(1, tokens + 1, size)
    mask = np.arange(tokens) < lengths[:, None]
    wide = rewards.astype(np.float64)
    mean = np.bincount(ids, wide) / each
    std = np.sqrt(np.bincount(ids, (wide - mean[ids]) ** 2) / (each - 1))
    advantages = ((wide - mean[ids]) / (std[ids] + 1e-6)).astype(np.float32)
    # A trainer makes one for each prompt.
    names = uids(ids)
    inputs = {"rewards": rewards, "ids": ids, "mask": mask, "lengths": lengths, "names": names}
    yield Case(CASE, inputs, {"advantages": advantages[:, None] * mask})


def _advlib(jit: bool, on_device: bool) -> Callable[[Case], Prepared]:
    def prepare(case: Case) -> Prepared:
        import jax
        import jax.numpy as jnp

        import advlib

        def both(rewards: Any, ids: Any, mask: Any) -> Any:
            return advlib.broadcast_to_tokens(advlib.grpo(rewards, ids), mask)

        given = [case.inputs[name] for name in ("rewards", "ids", "mask")]
        arguments = [jnp.asarray(array) for array in given] if on_device else given
        function = jax.jit(both) if jit else both
        return jax_prepared(lambda: function(*arguments))

    return prepare


def _numpy(case: Case) -> Prepared:
    rewards, ids, mask = (case.inputs[name] for name in ("rewards", "ids", "mask"))

    def call() -> np.ndarray:
        count = np.bincount(ids)
        centred = rewards - (np.bincount(ids, rewards) / count)[ids]
        std = np.sqrt(np.bincount(ids, centred**2) / (count - 1))
        advantages = (centred / (std[ids] + 1e-6)).astype(np.float32)
        return np.where(mask, advantages[:, None], np.float32(0))

    return Prepared(call, lambda result: {"advantages": result})


def _verl(function: str, index: str) -> Callable[[Case], Prepared]:
    def prepare(case: Case) -> Prepared:
        from verl.trainer.ppo import core_algos

        mask, lengths = case.inputs["mask"], case.inputs["lengths"]
        token_rewards = np.zeros(mask.shape, np.float32)
        token_rewards[np.arange(len(lengths)), lengths - 1] = case.inputs["rewards"]
        arguments = torch_tensor(token_rewards), torch_tensor(mask.astype(np.int64))
        keys = case.inputs[index].astype(object if index == "names" else np.int64)
        estimator = getattr(core_algos, function)
        return torch_prepared(
            lambda: estimator(*arguments, keys),
            lambda result: {"advantages": result[0].cpu().numpy()},
        )

    return prepare


def _first_touch(case: Case) -> Prepared:
    shape = case.inputs["mask"].shape
    expected = case.expected  # nothing is computed here, so nothing is compared

    def call() -> np.ndarray:
        result = np.empty(shape, np.float32)
        result.fill(1)
        return result

    return Prepared(call, lambda _: expected)


def _copy(case: Case) -> Prepared:
    source = np.ones(case.inputs["mask"].shape, np.float32)
    target = np.ones_like(source)
    expected = case.expected
    return Prepared(lambda: np.copyto(target, source), lambda _: expected)


IMPLEMENTATIONS = (
    Implementation("advlib", "base", "advlib", _advlib(jit=True, on_device=True)),
    Implementation("advlib, two calls", "base", "advlib", _advlib(jit=False, on_device=True)),
    Implementation("advlib, from host", "base", "advlib", _advlib(jit=True, on_device=False)),
    Implementation(
        "advlib, two calls from host", "base", "advlib", _advlib(jit=False, on_device=False)
    ),
    Implementation("NumPy", "base", "numpy", _numpy),
    Implementation(
        "verl vectorized",
        "peers",
        "verl",
        _verl("compute_grpo_vectorized_outcome_advantage", "ids"),
    ),
    Implementation(
        "verl vectorized, uid strings",
        "peers",
        "verl",
        _verl("compute_grpo_vectorized_outcome_advantage", "names"),
    ),
    Implementation("verl grpo", "peers", "verl", _verl("compute_grpo_outcome_advantage", "ids")),
    Implementation("floor: first touch", "base", "numpy", _first_touch),
    Implementation("floor: copy", "base", "numpy", _copy),
)

GATES = (
    Gate(CASE, "advlib", "verl vectorized", 0.7),
    Gate(CASE, "advlib, from host", "verl vectorized", 1.0),
)
