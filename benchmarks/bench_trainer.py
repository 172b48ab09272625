"""The embedded policy: tokens a second of sampler and update, and the estimator's share of a step.

    python benchmarks/bench_trainer.py [--json PATH] [--tiny]

One process, no peers. Each number is a median of calls after one that compiled; the steps are those
of a run of ``train``, so the shares include everything a step does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _common import device, versions
from rich.console import Console
from rich.table import Table

import advlib
from advlib import losses, trainer
from advlib.trainer.environments import question_set

TOKENIZER = trainer.ByteTokenizer()


class Size(NamedTuple):
    """Prompts are padded to ``max_prompt``, and every response is ``max_new`` tokens long."""

    rows: int
    max_prompt: int
    max_new: int
    repeats: int
    steps: int


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def parts(config: trainer.DecoderConfig, size: Size, dtype: Any) -> dict[str, float]:
    """Sampler and update alone."""
    policy = trainer.decoder(config)
    params = policy.init(jax.random.key(0))
    # No end token is ever sampled, so that every call does the same work.
    sample = trainer.make_sampler(
        policy, max_prompt=size.max_prompt, max_new=size.max_new, end_tokens=[0],
        forbidden=[*TOKENIZER.forbidden, *TOKENIZER.end_tokens], compute_dtype=dtype,
    )  # fmt: skip
    prompts = trainer.pad_prompts(
        [[1 + row % 200] * size.max_prompt for row in range(size.rows)], size.max_prompt
    )
    samples = sample(params, prompts, jax.random.key(0))
    advantages = np.random.default_rng(0).standard_normal(size.rows)
    batch = jax.device_put(trainer.rollout_batch(prompts, samples, advantages))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-5))
    step = trainer.make_train_step(
        policy.apply, optimizer, losses.policy_gradient, compute_dtype=dtype,
        forbidden=[*TOKENIZER.forbidden, *TOKENIZER.end_tokens],
    )  # fmt: skip
    state = trainer.init_state(jax.tree.map(jnp.copy, params), optimizer)
    state, metrics = step(state, batch)
    disagreement = float(metrics.disagreement)

    def update() -> Any:
        nonlocal state
        state, metrics = step(state, batch)
        return metrics

    sampling = median_seconds(lambda: sample(params, prompts, jax.random.key(1)), size.repeats)
    training = median_seconds(update, size.repeats)
    new = int(np.asarray(samples.lengths).sum())
    return {
        "sample_ms": sampling * 1e3,
        "update_ms": training * 1e3,
        "sampled_tokens_per_second": new / sampling,
        "trained_tokens_per_second": size.rows * (size.max_prompt + size.max_new) / training,
        "disagreement": disagreement,
    }


def shares(config: trainer.DecoderConfig, size: Size) -> dict[str, float]:
    """Where the time of a step goes in a run, the compiling step left out."""
    policy = trainer.decoder(config)
    texts = [f"question {number:03d}" for number in range(97)]
    codes = np.random.default_rng(0).standard_normal((97, 64)).astype(np.float32)
    environment = question_set(texts, lambda question, response: len(set(response)) % 3 / 2)
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(
            policy, policy.init(jax.random.key(0)), environment, tokenizer=TOKENIZER,
            advantages=lambda r: advlib.gs1(r.features, r.rewards, where=r.where),
            features=lambda prompts: codes[[int(prompt[-3:]) for prompt in prompts]],
            optimizer=optax.adam(1e-5), directory=folder, progress=False, tensorboard=False,
            settings=trainer.TrainSettings(
                steps=size.steps + 1, questions_per_step=size.rows, group_size=1,
                max_prompt=size.max_prompt, max_new=size.max_new, checkpoint_every=10**6,
            ),
        )  # fmt: skip
        lines = (Path(folder) / "times.jsonl").read_text().splitlines()[1:]
    times = [json.loads(line) for line in lines]
    names = [name for name in times[0] if name != "step"]
    spent = {name: statistics.median(line[name] for line in times) for name in names}
    total = sum(spent.values())
    return {
        **{f"{name}_ms": seconds * 1e3 for name, seconds in spent.items()},
        "advantage_share": spent["advantage"] / total,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path)
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--peers-python", help="not used: there is no peer here")
    chosen = options.parse_args()
    config, size = trainer.DecoderConfig(), Size(32, 35, 8, 20, 20)
    if chosen.tiny:
        config = trainer.DecoderConfig(width=16, layers=1, head_width=8, hidden=32)
        size = Size(4, 14, 3, 3, 3)
    load = [os.getloadavg()[0]]
    results = {
        "float32": parts(config, size, None),
        "bfloat16": parts(config, size, jnp.bfloat16),
        "a step of train": shares(config, size),
    }
    load.append(os.getloadavg()[0])
    memory = jax.local_devices()[0].memory_stats() or {}
    record = {
        "size": size._asdict(),
        "policy": config._asdict(),
        "results": results,
        "peak_host_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_device_mb": memory.get("peak_bytes_in_use", 0) / 2**20 or None,
        "load": load,
        "device": device("advlib"),
        "versions": versions("advlib"),
    }
    table = Table("", "measure", "value", title=f"{size.rows} responses of {size.max_new} tokens")
    for name, measures in results.items():
        for measure, value in measures.items():
            table.add_row(name, measure, f"{value:,.4g}")
    Console(width=100).print(table)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
