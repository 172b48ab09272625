"""Eight devices, and two processes, give the numbers of one device."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from advlib import losses, trainer
from advlib.trainer import Batch, Prompts
from advlib.trainer._fingerprint import fingerprint
from tests.trainer import runs
from tests.trainer.small import BYTES, ONE_BLOCK, params, ragged_prompts, sampled_batch

ROOT = Path(__file__).parent.parent.parent
DESCENT = optax.adam(1e-2, eps=1e-4)


def sharded(spec: Any) -> bool:
    return any(axis is not None for axis in spec)


def test_the_mesh_splits_what_can_be_split() -> None:
    mesh = trainer.make_mesh(4)
    assert dict(mesh.shape) == {"data": 2, "shard": 4}
    tree = {"wide": np.zeros((4, 16)), "odd": np.zeros((3, 5)), "scalar": np.zeros(())}
    placed = trainer.place_state(tree, mesh)
    assert placed["wide"].sharding.spec == PartitionSpec(None, "shard")
    assert not sharded(placed["odd"].sharding.spec)
    assert not sharded(placed["scalar"].sharding.spec)
    copies = trainer.place_state(tree, trainer.make_mesh(1))
    assert not sharded(copies["wide"].sharding.spec)
    with pytest.raises(ValueError, match="shard must divide the number of devices, 8; got 3"):
        trainer.make_mesh(3)
    with pytest.raises(ValueError, match="a batch of 6 rows cannot be split over 8 devices"):
        trainer.place_batch((np.zeros((6, 2)),), mesh)


@functools.cache
def on_one_device() -> Any:
    return trainer.make_train_step(
        trainer.decoder(ONE_BLOCK).apply, DESCENT, losses.policy_gradient, forbidden=(0,)
    )


@pytest.mark.parametrize(("shard", "micro_batches"), [(1, 2), (4, 1)])
def test_steps_on_eight_devices_are_those_of_one(shard: int, micro_batches: int) -> None:
    mesh, tree = trainer.make_mesh(shard), params(ONE_BLOCK)
    apply = trainer.decoder(ONE_BLOCK).apply
    batch = sampled_batch(ONE_BLOCK, tree, rows=16)
    one = on_one_device()
    many = trainer.make_train_step(
        apply, DESCENT, losses.policy_gradient, mesh=mesh, forbidden=(0,),
        micro_batches=micro_batches,
    )  # fmt: skip
    state = trainer.init_state(jax.tree.map(jnp.copy, tree), DESCENT)
    split = trainer.place_state(trainer.init_state(jax.tree.map(jnp.copy, tree), DESCENT), mesh)
    before = jax.tree.map(lambda array: array.sharding, split)
    placed = Batch(*trainer.place_batch(tuple(batch), mesh))
    for _ in range(2):
        state, told = one(state, batch)
        split, told_split = many(split, placed)
    assert jax.tree.map(lambda array: array.sharding, split) == before
    assert any(sharded(s.spec) for s in jax.tree.leaves(before.params)) == (shard > 1)
    np.testing.assert_allclose(runs.flat(split.params), runs.flat(state.params), rtol=0, atol=1e-5)
    np.testing.assert_allclose(told_split, told, rtol=1e-4, atol=1e-5)


def test_samples_on_eight_devices_are_those_of_one() -> None:
    mesh, tree, policy = trainer.make_mesh(4), params(BYTES), trainer.decoder(BYTES)
    prompts = ragged_prompts(8, 6, 256)
    options = {"max_prompt": 6, "max_new": 8, "end_tokens": (258,), "forbidden": (256, 257)}
    one = trainer.make_sampler(policy, **options)(tree, prompts, jax.random.key(1))
    many = trainer.make_sampler(policy, mesh=mesh, **options)(
        trainer.place_state(tree, mesh),
        Prompts(*trainer.place_batch(tuple(prompts), mesh)),
        jax.random.key(1),
    )
    assert many.tokens.is_fully_replicated
    np.testing.assert_array_equal(many.tokens, one.tokens)
    np.testing.assert_allclose(many.log_probs, one.log_probs, rtol=0, atol=1e-5)


def test_a_reference_on_eight_devices_is_that_of_one() -> None:
    mesh, tree, apply = trainer.make_mesh(4), params(ONE_BLOCK), trainer.decoder(ONE_BLOCK).apply
    batch = sampled_batch(ONE_BLOCK, tree, rows=16)
    one = trainer.make_log_probs(apply, forbidden=(0,))(tree, batch)
    many = trainer.make_log_probs(apply, forbidden=(0,), micro_batches=2, mesh=mesh)(
        trainer.place_state(tree, mesh), trainer.place_batch(batch, mesh)
    )
    assert many.is_fully_replicated
    np.testing.assert_allclose(many, one, rtol=0, atol=1e-5)


def test_frozen_arrays_are_known_again_however_they_are_split() -> None:
    tree = params(ONE_BLOCK)
    known = fingerprint(tree)
    assert known == fingerprint(trainer.place_state(tree, trainer.make_mesh(8)))
    assert known == fingerprint(jax.tree.map(np.asarray, tree))
    swapped = {**tree, "embed": jnp.flip(tree["embed"], 0)}
    nudged = {**tree, "embed": tree["embed"].at[3, 2].add(1e-7)}
    half = jax.tree.map(lambda array: array.astype(jnp.bfloat16), tree)
    assert len({known, *map(fingerprint, (swapped, nudged, half))}) == 4
    assert fingerprint(()) is None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_two_processes_are_one(tmp_path: Path) -> None:
    """The whole loop, four devices a process, parameters split over all eight."""
    runs.run(tmp_path / "one", settings=runs.MORE._replace(steps=4))
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "tests.trainer.runs", str(tmp_path / "two"), "4"]
    command += ["--shard", "8", "--port", str(free_port())]
    started = [
        subprocess.Popen(
            [*command, "--process", str(process)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in (0, 1)
    ]
    try:
        told = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], told

    def lines(name: str) -> list[dict[str, Any]]:
        text = (tmp_path / name / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    one, two = lines("one"), lines("two")
    assert len(one) == len(two) == 4
    for first, second in zip(one, two, strict=True):
        assert first["rewards"] == second["rewards"]
        for name in (
            "loss",
            "grad_norm",
            "entropy",
            "tokens",
            "baseline",
            "kl_k3",
            "reference_kl_k1",
        ):
            np.testing.assert_allclose(second[name], first[name], rtol=1e-5, atol=1e-5)
    resumed = runs.run(tmp_path / "one", settings=runs.MORE._replace(steps=4), resume=True)
    np.testing.assert_allclose(
        np.load(tmp_path / "two" / "params.npy"), runs.flat(resumed.params), rtol=0, atol=1e-5
    )
