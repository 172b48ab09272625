"""Advantages per token from a critic: 1,024 responses of 2,048 tokens.

Plain GAE against rlax; GAE that skips masked tokens, whitened, with the critic's targets, against
verl and tunix; and masked whitening alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import (
    Arrays,
    Case,
    Gate,
    Implementation,
    Prepared,
    jax_prepared,
    torch_prepared,
    torch_tensor,
)

TITLE = "GAE and whitening"
DISCOUNT, LAM = 0.99, 0.95
PLAIN, MASKED, WHITEN = "gae_1024x2048", "gae_masked_whitened_1024x2048", "whiten_1024x2048"
SKIPPING = "gae_masked_1024x2048"


def _reference(rewards: np.ndarray, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    rewards, values = rewards.astype(np.float64), values.astype(np.float64)
    result = np.zeros_like(rewards)
    advantage, following = np.zeros(len(rewards)), np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + DISCOUNT * following - values[:, t]
        kept = mask[:, t]
        advantage = np.where(kept, delta + DISCOUNT * LAM * advantage, advantage)
        following = np.where(kept, values[:, t], following)
        result[:, t] = np.where(kept, advantage, 0)
    return result


def _whitened(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    kept = x[mask].astype(np.float64)
    return np.where(mask, (x - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8), 0)


def cases(tiny: bool) -> Iterator[Case]:
    rows, tokens = (4, 70) if tiny else (1024, 2048)
    rng = np.random.default_rng(21)
    rewards, values = rng.standard_normal((2, rows, tokens), dtype=np.float32)
    # Three turns with tool output between them, then padding.
    cuts = np.sort(rng.integers(0, tokens + 1, (rows, 6)), axis=1)
    turn = (np.arange(tokens)[None, :, None] >= cuts[:, None, :]).sum(-1)
    mask = turn % 2 == 1
    everything = {"rewards": rewards, "values": values}
    all_tokens = np.ones_like(mask)
    yield Case(PLAIN, everything, {"advantages": _reference(rewards, values, all_tokens)}, 1e-5)
    skipping = _reference(rewards, values, mask)
    masked = {**everything, "mask": mask}
    yield Case(SKIPPING, masked, {"advantages": skipping}, 1e-5)
    targets = np.where(mask, skipping + values, 0)
    expected = {"advantages": _whitened(skipping, mask), "targets": targets}
    yield Case(MASKED, masked, expected, 1e-5)
    whitened = {"advantages": _whitened(values, mask)}
    yield Case(WHITEN, {"values": values, "mask": mask}, whitened, 1e-5)


def _on(mask: np.ndarray) -> Callable[[Any], Arrays]:
    """Two outputs, compared where tokens are trained: peers leave what they like elsewhere."""

    def outputs(result: Any) -> Arrays:
        first, second = (np.where(mask, np.asarray(array), 0) for array in result[:2])
        return {"advantages": first, "targets": second}

    return outputs


def _advlib(jit: bool, on_device: bool = True) -> Callable[[Case], Prepared]:
    def prepare(case: Case) -> Prepared:
        import jax
        import jax.numpy as jnp

        import advlib

        def plain(rewards: Any, values: Any) -> Any:
            return advlib.gae(rewards, values, discount=DISCOUNT, lam=LAM)

        def skipping(rewards: Any, values: Any, mask: Any) -> Any:
            return advlib.gae(rewards, values, mask=mask, discount=DISCOUNT, lam=LAM)

        def masked(rewards: Any, values: Any, mask: Any) -> Any:
            advantages = skipping(rewards, values, mask)
            targets = jnp.where(mask, advantages + values, 0)
            return advlib.masked_whiten(advantages, mask), targets

        functions = {
            PLAIN: plain, SKIPPING: skipping, MASKED: masked, WHITEN: advlib.masked_whiten
        }  # fmt: skip
        function = functions[case.name]
        wanted = ("rewards", "values", "mask")
        given = [case.inputs[name] for name in wanted if name in case.inputs]
        arguments = [jnp.asarray(array) for array in given] if on_device else given
        run = jax.jit(function) if jit else function
        outputs = _on(case.inputs["mask"]) if case.name == MASKED else None
        return jax_prepared(lambda: run(*arguments), outputs)

    return prepare


def _numpy(case: Case) -> Prepared:
    values = case.inputs["values"]
    rewards, mask = case.inputs.get("rewards", values), case.inputs.get("mask")

    def plain() -> np.ndarray:
        following = np.concatenate([values[:, 1:], np.zeros_like(values[:, :1])], axis=1)
        result = rewards + np.float32(DISCOUNT) * following - values
        for t in reversed(range(result.shape[1] - 1)):
            result[:, t] += np.float32(DISCOUNT * LAM) * result[:, t + 1]
        return result

    def skipping() -> np.ndarray:
        result = np.empty_like(rewards)
        advantage = following = np.zeros_like(values[:, 0])
        for t in reversed(range(result.shape[1])):
            delta = rewards[:, t] + np.float32(DISCOUNT) * following - values[:, t]
            step = delta + np.float32(DISCOUNT * LAM) * advantage
            advantage = np.where(mask[:, t], step, advantage)
            following = np.where(mask[:, t], values[:, t], following)
            result[:, t] = np.where(mask[:, t], step, 0)
        return result

    def whiten(x: np.ndarray) -> np.ndarray:
        mean = x.mean(where=mask)
        variance = x.var(where=mask, ddof=1)
        return np.where(mask, (x - mean) / np.sqrt(variance + np.float32(1e-8)), np.float32(0))

    def masked() -> tuple[np.ndarray, np.ndarray]:
        advantages = skipping()
        return whiten(advantages), np.where(mask, advantages + values, 0)

    if case.name == MASKED:
        return Prepared(masked, _on(mask))
    call = {PLAIN: plain, SKIPPING: skipping, WHITEN: lambda: whiten(values)}[case.name]
    return Prepared(call, lambda result: {"advantages": result})


def _rlax(folded: bool) -> Callable[[Case], Prepared | None]:
    """Per-step discounts are an input of rlax; where one number is folded in, XLA drops them."""

    def prepare(case: Case) -> Prepared | None:
        if case.name != PLAIN:
            return None
        import jax
        import jax.numpy as jnp
        import rlax

        def one(rewards: Any, discounts: Any, values: Any) -> Any:
            return rlax.truncated_generalized_advantage_estimation(rewards, discounts, LAM, values)

        def constant(rewards: Any, values: Any) -> Any:
            return one(rewards, jnp.full_like(rewards, DISCOUNT), values)

        rewards = jnp.asarray(case.inputs["rewards"])
        values = jnp.pad(jnp.asarray(case.inputs["values"]), ((0, 0), (0, 1)))
        if folded:
            function = jax.jit(jax.vmap(constant))
            return jax_prepared(lambda: function(rewards, values))
        discounts = jnp.full_like(rewards, DISCOUNT)
        function = jax.jit(jax.vmap(one))
        return jax_prepared(lambda: function(rewards, discounts, values))

    return prepare


def _tunix(case: Case) -> Prepared | None:
    if case.name not in (MASKED, WHITEN):
        return None
    import jax.numpy as jnp
    from tunix.rl import algo_core

    mask = case.inputs["mask"]
    arrays = {name: jnp.asarray(array) for name, array in case.inputs.items()}
    if case.name == MASKED:
        rewards, values, kept = arrays["rewards"], arrays["values"], arrays["mask"]
        return jax_prepared(
            lambda: algo_core.compute_gae_advantages(rewards, values, kept, DISCOUNT, LAM),
            _on(mask),
        )

    def outputs(result: Any) -> Arrays:
        return {"advantages": np.where(mask, np.asarray(result), 0)}

    return jax_prepared(lambda: algo_core.masked_whiten(arrays["values"], arrays["mask"]), outputs)


def _verl(case: Case) -> Prepared | None:
    if case.name not in (MASKED, WHITEN):
        return None
    from verl.trainer.ppo import core_algos
    from verl.utils.torch_functional import masked_whiten

    mask = case.inputs["mask"]
    values, kept = torch_tensor(case.inputs["values"]), torch_tensor(mask.astype(np.int64))
    if case.name == MASKED:
        rewards = torch_tensor(case.inputs["rewards"])
        return torch_prepared(
            lambda: core_algos.compute_gae_advantage_return(rewards, values, kept, DISCOUNT, LAM),
            lambda result: _on(mask)([array.cpu().numpy() for array in result]),
        )

    def outputs(result: Any) -> Arrays:
        return {"advantages": np.where(mask, result.cpu().numpy(), 0)}

    return torch_prepared(lambda: masked_whiten(values, kept), outputs)


def _copy(case: Case) -> Prepared:
    source = np.ones_like(case.inputs["values"])
    target = np.ones_like(source)
    expected = case.expected  # nothing is computed here, so nothing is compared
    return Prepared(lambda: np.copyto(target, source), lambda _: expected)


IMPLEMENTATIONS = (
    Implementation("advlib", "base", "advlib", _advlib(jit=True)),
    Implementation("advlib, calls", "base", "advlib", _advlib(jit=False)),
    Implementation("advlib, from host", "base", "advlib", _advlib(jit=True, on_device=False)),
    Implementation("NumPy", "base", "numpy", _numpy),
    Implementation("rlax", "peers", "rlax", _rlax(folded=False)),
    Implementation("rlax, discount folded in", "peers", "rlax", _rlax(folded=True)),
    Implementation("tunix", "peers", "google-tunix", _tunix),
    Implementation("verl", "peers", "verl", _verl),
    Implementation("floor: copy", "base", "numpy", _copy),
)

GATES = (
    Gate(PLAIN, "advlib", "rlax", 0.25),
    Gate(MASKED, "advlib", "tunix", 1.0),
    Gate(WHITEN, "advlib", "verl", 1.0),
)
