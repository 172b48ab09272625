"""Everything a run needs to go on, on disk: written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from advlib.trainer._fingerprint import fingerprint
from advlib.trainer._options import count, needed
from advlib.trainer._step import TrainState

__all__ = ["Checkpoint", "Checkpoints"]


class Checkpoint(NamedTuple):
    """One moment of a run.

    Attributes:
        state: parameters, optimizer state, updates so far.
        key: the run's random key.
        facts: what JSON can say: steps done, questions taken, length of the metrics file, settings.
    """

    state: TrainState
    key: Array
    facts: dict[str, Any]


class Checkpoints:
    """The last few checkpoints of a run, by orbax.

    A checkpoint gets its name only when all of it is written, so a process killed at any moment
    leaves the one before. On many processes each writes its part, into one folder that all see.
    """

    def __init__(self, directory: Path | str, *, keep: int = 2) -> None:
        """Open a folder of checkpoints; it is made where it is missing.

        Args:
            directory: the folder.
            keep: how many of the latest stay.

        Raises:
            ImportError: orbax is not installed; names the extra.
            TypeError, ValueError: ``keep`` is not a positive integer.
        """
        self._orbax = needed("orbax.checkpoint", "a checkpoint")
        options = self._orbax.CheckpointManagerOptions(
            max_to_keep=count("keep", keep, 1),
            cleanup_tmp_directories=True,
            enable_async_checkpointing=False,
        )
        self._manager = self._orbax.CheckpointManager(Path(directory).resolve(), options=options)

    def save(self, step: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; returns when it is on disk.

        Raises:
            ValueError: the folder holds a checkpoint of this step or a later one.
        """
        args = self._orbax.args
        written = self._manager.save(
            step,
            args=args.Composite(
                state=args.StandardSave(checkpoint.state),
                facts=args.JsonSave(checkpoint.facts),
                form=args.JsonSave(_form(checkpoint.state)),
                fingerprint=args.JsonSave({"state": fingerprint(checkpoint.state)}),
                key=args.JsonSave(
                    {
                        "impl": str(jax.random.key_impl(checkpoint.key)),
                        "data": jax.random.key_data(checkpoint.key).tolist(),
                    }
                ),
            ),
        )
        if not written:
            raise ValueError(
                f"{self._manager.directory} holds a checkpoint of step {self.latest()}; "
                f"step {step} is not after it"
            )

    def latest(self) -> int | None:
        """The step of the last checkpoint; None if there is none."""
        return self._manager.latest_step()

    def facts(self, step: int) -> dict[str, Any]:
        """What a checkpoint says in JSON, read before the arrays."""
        args = self._orbax.args
        return dict(
            self._manager.restore(step, args=args.Composite(facts=args.JsonRestore()))["facts"]
        )

    def restore(self, step: int, like: TrainState) -> Checkpoint:
        """Read a checkpoint.

        Args:
            step: of the checkpoint.
            like: a state of the same structure, shapes and placement; its values are not read.

        Returns:
            The checkpoint.

        Raises:
            ValueError: shapes, dtypes or structure differ from what was saved; names the arrays. Or
                the arrays that were saved have changed on disk.
        """
        args = self._orbax.args
        form = self._manager.restore(step, args=args.Composite(form=args.JsonRestore()))["form"]
        now = _form(like)
        different = [
            f"{name} is {now.get(name, 'nothing')} and was saved as {form.get(name, 'nothing')}"
            for name in dict.fromkeys([*now, *form])
            if now.get(name) != form.get(name)
        ]
        if different:
            more = f", and {len(different) - 3} more" if len(different) > 3 else ""
            raise ValueError(
                f"{self._manager.directory / str(step)} is of another policy or optimizer: "
                f"{'; '.join(different[:3])}{more}"
            )
        wanted = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding),
            like,
        )
        read = self._manager.restore(
            step,
            args=args.Composite(
                state=args.StandardRestore(wanted),
                facts=args.JsonRestore(),
                key=args.JsonRestore(),
                fingerprint=args.JsonRestore(),
            ),
        )
        if fingerprint(read["state"]) != read["fingerprint"]["state"]:
            raise ValueError(
                f"{self._manager.directory / str(step)} is damaged: its arrays are not those saved"
            )
        data = jnp.asarray(read["key"]["data"], jnp.uint32)
        key = jax.random.wrap_key_data(data, impl=read["key"]["impl"])
        return Checkpoint(read["state"], key, read["facts"])

    def close(self) -> None:
        """Wait for what is still being written."""
        self._manager.close()


def _form(state: TrainState) -> dict[str, str]:
    """Dtype and shape of every array, by its place in the tree."""
    return {
        jax.tree_util.keystr(path): f"{array.dtype}{list(array.shape)}"
        for path, array in jax.tree_util.tree_leaves_with_path(state)
    }
