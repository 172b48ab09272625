"""What all arms begin from, and the devices it lies on."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import msgspec
from jax.sharding import Mesh

from advlib.experiments._sources import GivenPolicy, PublishedPolicy
from advlib.experiments.reading import SpecError
from advlib.experiments.spec import Spec
from advlib.trainer import ByteTokenizer, Policy, Tokenizer, decoder, make_mesh, place_state
from advlib.trainer.environments import Split

# Weights, settings and tokenizers; not the pictures and pages that lie beside them.
MODEL_FILES = (".json", ".safetensors", ".model", ".txt", ".jinja")


class Given(NamedTuple):
    """What a caller hands over where the spec says "given".

    Attributes:
        policy: a policy, its parameters and its tokenizer.
        environment: questions to train on and others to be examined on.
    """

    policy: tuple[Policy, Any, Tokenizer] | None = None
    environment: Split | None = None


def begin_mesh(spec: Spec) -> Mesh | None:
    """The devices that a spec asks for; None for one.

    Raises:
        SpecError: they do not divide a batch, or there are several processes.
    """
    shard = spec.compute.shard
    if shard is None:
        return None
    if jax.process_count() > 1:
        raise SpecError(
            "an experiment runs in one process, on all of its devices; this is one of "
            f"{jax.process_count()} processes"
        )
    try:
        mesh = make_mesh(shard)
    except ValueError as error:
        raise SpecError(f"compute.shard: {error}") from error
    rows = spec.batch_size // spec.compute.micro_batches
    for name, size in (
        ("batch_size / compute.micro_batches", rows),
        ("eval.batch_size", spec.eval.batch_size),
    ):
        if size % mesh.size:
            raise SpecError(f"{name} is {size}, and cannot be split over {mesh.size} devices")
    return mesh


def begin_policy(
    spec: Spec, folder: Path, given: Given, mesh: Mesh | None
) -> tuple[Policy, Any, Tokenizer]:
    """The policy of a spec, its parameters before any training, and its tokenizer.

    Raises:
        SpecError: it is not given, or its folder cannot be read.
        ImportError: a package is missing; names the extra.
    """
    wanted = spec.policy
    if isinstance(wanted, PublishedPolicy):
        return _published(wanted, folder, mesh)
    if isinstance(wanted, GivenPolicy):
        if given.policy is None:
            raise SpecError(f"policy {wanted.name!r} is to be given by the caller, and is not")
        return given.policy
    tokenizer = ByteTokenizer()
    policy = decoder(wanted.config(tokenizer.vocab_size))
    return policy, policy.init(jax.random.key(wanted.seed)), tokenizer


def _published(
    wanted: PublishedPolicy, folder: Path, mesh: Mesh | None
) -> tuple[Policy, Any, Tokenizer]:
    from advlib.trainer.llm import load_llm

    options = msgspec.structs.asdict(wanted)  # named as load_llm names them
    path = located(folder, options.pop("path"))
    try:
        loaded = load_llm(path, place=partial(place_state, mesh=mesh), **options)
    except (TypeError, ValueError) as error:
        raise SpecError(f"policy: {error}") from error
    return loaded.policy, loaded.params, loaded.tokenizer


def located(folder: Path, name: str) -> Path:
    """A path of a spec: absolute, below the home directory (``~``), or from the spec's folder."""
    return folder / os.path.expanduser(name)


def model_files(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a model's folder that are read, by name."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in MODEL_FILES:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
