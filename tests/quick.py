"""Programs of tests run for milliseconds and compile for seconds: XLA need not optimise them."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # for the processes that tests start
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", before)
