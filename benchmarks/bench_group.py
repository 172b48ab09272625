"""Every estimator over one flat batch: 32, 4,096 and 65,536 samples in shuffled groups.

"advlib, jit" is a call inside the user's own jit, on arrays that are already on the device;
"advlib" is the plain call on them; "advlib, from host" takes NumPy arrays, checks their values and
brings them over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import Case, Gate, Implementation, Prepared, jax_prepared, torch_prepared, torch_tensor
from _numpy_group import ESTIMATORS

TITLE = "Estimators of one flat batch"
NEEDS = {  # what each takes, in advlib's order
    "group_mean": ("rewards", "ids"),
    "grpo": ("rewards", "ids"),
    "leave_one_out": ("rewards", "ids"),
    "max_rl": ("rewards", "ids"),
    "batch_mean": ("rewards",),
    "batch_leave_one_out": ("rewards",),
    "hack_floor": ("rewards", "hacks", "ids"),
    "rank_margin": ("tiers", "margins", "ids"),
    "win_rate": ("tiers", "ids"),
    "gar": ("rewards", "tiers", "ids"),
}


def cases(tiny: bool) -> Iterator[Case]:
    rng = np.random.default_rng(22)
    for prompts, each in ((4, 8),) if tiny else ((4, 8), (256, 16), (4096, 16)):
        size = prompts * each
        arrays = {
            "ids": rng.permutation(np.repeat(np.arange(prompts, dtype=np.int32), each)),
            "rewards": rng.random(size, dtype=np.float32),
            "hacks": rng.random(size) < 0.05,
            "tiers": rng.integers(-1, 4, size).astype(np.int32),
            "margins": rng.random((prompts, 3), dtype=np.float32),
        }
        for name, needs in NEEDS.items():
            inputs = {key: arrays[key] for key in needs}
            wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in inputs.values()]
            yield Case(f"{name}_{size:05d}", inputs, {"advantages": ESTIMATORS[name](*wide)})


def _estimator(case: Case) -> str:
    return case.name.rpartition("_")[0]


def _advlib(jit: bool, on_device: bool) -> Callable[[Case], Prepared]:
    def prepare(case: Case) -> Prepared:
        import jax
        import jax.numpy as jnp

        import advlib

        name = _estimator(case)
        function = getattr(advlib, name)
        given = [case.inputs[key] for key in NEEDS[name]]
        arguments = [jnp.asarray(array) for array in given] if on_device else given
        run = jax.jit(lambda *arrays: function(*arrays)) if jit else function
        first = (lambda result: result.advantages) if name == "gar" else (lambda result: result)
        return jax_prepared(
            lambda: run(*arguments), lambda result: {"advantages": np.asarray(first(result))}
        )

    return prepare


def _numpy(case: Case) -> Prepared:
    function = ESTIMATORS[_estimator(case)]
    arguments = [case.inputs[key] for key in NEEDS[_estimator(case)]]
    return Prepared(lambda: function(*arguments), lambda result: {"advantages": result})


def _verl(case: Case) -> Prepared | None:
    from verl.trainer.ppo import core_algos

    vectorized = core_algos.compute_grpo_vectorized_outcome_advantage
    functions: dict[str, tuple[Callable[..., Any], dict[str, bool]]] = {
        "grpo": (vectorized, {}),
        "group_mean": (vectorized, {"norm_adv_by_std_in_grpo": False}),
        "leave_one_out": (core_algos.compute_rloo_vectorized_outcome_advantage, {}),
    }
    name = _estimator(case)
    if name not in functions:
        return None
    function, options = functions[name]
    rewards = torch_tensor(case.inputs["rewards"][:, None])  # a response of one token
    mask = torch_tensor(np.ones(rewards.shape, np.int64))
    index = case.inputs["ids"].astype(np.int64)
    return torch_prepared(
        lambda: function(rewards, mask, index, **options),
        lambda result: {"advantages": result[0][:, 0].cpu().numpy()},
    )


def _tunix(case: Case) -> Prepared | None:
    import jax.numpy as jnp
    from tunix.rl import algo_core

    functions: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "grpo": (algo_core.compute_advantages, np.asarray),
        "group_mean": (algo_core.compute_drgrpo_advantages, jnp.asarray),
        "leave_one_out": (algo_core.compute_rloo_advantages, jnp.asarray),
    }
    name = _estimator(case)
    if name not in functions:
        return None
    function, convert = functions[name]
    ids = case.inputs["ids"]
    order = np.argsort(ids, kind="stable")  # it takes equal, contiguous groups only
    rewards = convert(case.inputs["rewards"][order])
    each = int(np.bincount(ids)[0])

    def outputs(result: Any) -> dict[str, np.ndarray]:
        back = np.empty(len(order))
        back[order] = np.asarray(result)
        return {"advantages": back}

    return jax_prepared(lambda: function(rewards, each), outputs)


IMPLEMENTATIONS = (
    Implementation("advlib", "base", "advlib", _advlib(jit=False, on_device=True)),
    Implementation("advlib, jit", "base", "advlib", _advlib(jit=True, on_device=True)),
    Implementation("advlib, from host", "base", "advlib", _advlib(jit=False, on_device=False)),
    Implementation("NumPy", "base", "numpy", _numpy),
    Implementation("tunix", "peers", "google-tunix", _tunix),
    Implementation("verl vectorized", "peers", "verl", _verl),
)

GATES: tuple[Gate, ...] = ()
