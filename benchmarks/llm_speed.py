"""Tokens a second of a random model of published shape: sampling, training, and the estimator.

    python benchmarks/llm_speed.py [--shape qwen3-0.6b|tiny] [--rows 32] [--prompt 128] [--new 128]
        [--micro-batches 8] [--lora-rank 32] [--repeats 5] [--json PATH]

Weights are random and nothing is read: speed does not depend on their values. The large shape is
meant for an accelerator; ``--shape tiny`` shows on any processor that the script runs.
Needs ``pip install 'advlib[llm]'``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import advlib
from advlib.losses import policy_gradient
from advlib.trainer import (
    init_state,
    make_sampler,
    make_train_step,
    pad_prompts,
    rollout_batch,
)
from advlib.trainer.llm._config import Architecture
from advlib.trainer.llm._policy import Lora, llm_policy, parameter_shapes
from advlib.trainer.llm._rope import Rope

COMMON: dict[str, Any] = {
    "family": "qwen3", "tied": True, "norm_eps": 1e-6, "rope": Rope(1_000_000.0),
    "local_rope": None, "window": None, "score_cap": None, "logit_cap": None,
    "max_length": 40_960, "without_effect": (),
}  # fmt: skip
SHAPES = {
    "qwen3-0.6b": Architecture(
        vocab_size=151_936, layers=28, width=1024, hidden=3072, heads=16, kv_heads=8, head_dim=128,
        **COMMON,
    ),
    "tiny": Architecture(
        vocab_size=512, layers=2, width=64, hidden=128, heads=4, kv_heads=2, head_dim=16, **COMMON
    ),
}  # fmt: skip


def random_weights(architecture: Architecture) -> dict[str, jax.Array]:
    """bfloat16, of the size that a trained model's have; norms are neutral."""
    weights = {}
    for number, (name, shape) in enumerate(parameter_shapes(architecture).items()):
        if len(shape) == 1:
            weights[name] = jnp.ones(shape, jnp.bfloat16)
        else:
            key = jax.random.fold_in(jax.random.key(0), number)
            weights[name] = jax.random.normal(key, shape, jnp.bfloat16) * jnp.bfloat16(0.02)
    return weights


def timed(call: Callable[[], Any], repeats: int) -> tuple[Any, float, list[float]]:
    """The last result, seconds of the first call with its compilation, seconds of later ones."""
    spent = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        spent.append(time.perf_counter() - start)
    return result, spent[0], spent[1:]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    architecture = SHAPES[options.shape]
    weights = random_weights(architecture)
    policy = llm_policy(
        architecture, weights, lora=Lora(options.lora_rank, float(options.lora_rank)), remat=True
    )
    params = policy.init(jax.random.key(1))
    rng = np.random.default_rng(0)
    rows, width, new = options.rows, options.prompt, options.new
    prompts = pad_prompts(
        [rng.integers(2, architecture.vocab_size, width).tolist() for _ in range(rows)], width
    )
    sample = make_sampler(policy, max_prompt=width, max_new=new, end_tokens=[1], forbidden=[0])
    # A response ends at the end token by chance alone; what was sampled is what is counted.
    samples, sample_first, sampling = timed(
        lambda: sample(params, prompts, jax.random.key(2)), options.repeats
    )
    sampled = int(np.asarray(samples.lengths).sum())

    rewards = rng.integers(0, 2, rows).astype(np.float32)
    groups = np.arange(rows, dtype=np.int32) // 8
    advantages, _, estimating = timed(lambda: advlib.grpo(rewards, groups), options.repeats)

    batch = rollout_batch(prompts, jax.tree.map(np.asarray, samples), np.asarray(advantages))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-4))
    step = make_train_step(
        policy.apply, optimizer, policy_gradient, forbidden=[0], micro_batches=options.micro_batches
    )
    state = init_state(jax.tree.map(jnp.copy, params), optimizer)
    metrics: Any = None

    def update() -> Any:
        nonlocal state, metrics
        state, metrics = step(state, batch)
        return metrics

    _, train_first, training = timed(update, options.repeats)
    if float(metrics.applied) != 1:
        raise SystemExit("the update was not applied: its loss or gradient is not finite")
    seconds = {
        "sampling": statistics.median(sampling),
        "estimator": statistics.median(estimating),
        "training": statistics.median(training),
    }
    memory = jax.devices()[0].memory_stats() or {}
    whole = sum(seconds.values())
    return {
        "device": jax.devices()[0].device_kind,
        "devices": len(jax.devices()),
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "google-tunix")},
        "shape": options.shape,
        "parameters": sum(int(np.prod(shape)) for shape in parameter_shapes(architecture).values()),
        "trained": sum(value.size for value in params.values()),
        "rows": rows,
        "prompt": width,
        "new": new,
        "micro_batches": options.micro_batches,
        "seconds": seconds,
        "seconds_of_first_call": {"sampling": sample_first, "training": train_first},
        "sampled_tokens_per_second": sampled / seconds["sampling"],
        "trained_tokens_per_second": sampled / seconds["training"],
        "read_tokens_per_second": (sampled + rows * width) / seconds["training"],
        "estimator_share": seconds["estimator"] / whole,
        "peak_bytes": memory.get("peak_bytes_in_use"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where the record is written")
    options = parser.parse_args()
    record = measure(options)
    text = json.dumps(record, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
