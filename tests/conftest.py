"""Eight virtual devices, strict promotion, and one fixed hypothesis profile for every test."""

from __future__ import annotations

import os

# XLA reads its flags once, when the first array is made.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from typing import Any

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile(
    "advlib",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("advlib")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Keep all laws of one estimator in one process, where they share compiled programs."""
    from xdist.scheduler import LoadScopeScheduling

    class ByEstimator(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            if path.endswith(("test_laws.py", "test_checks.py", "test_sharding.py")):
                return "[" + test.partition("[")[2]
            return nodeid

    if config.getoption("dist") != "load":
        return None
    return ByEstimator(config, log)
