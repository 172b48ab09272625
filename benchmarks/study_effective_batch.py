"""Is the effective batch unbiased, and do its intervals hold what they promise?

    python benchmarks/study_effective_batch.py [--repeats 1000] [--json PATH]

Tables of rewards are drawn from populations whose ratio is known in closed form. For each estimate:
the mean's distance to the truth in standard errors, and how often the 95% interval holds the truth.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from advlib.diagnostics import effective_batch
from tests.diagnostics.clusters import Kinds, sample, truth

QUANTITIES = ("sigma2", "mse_loo", "mse_kernel", "ratio")
JUDGED = (*QUANTITIES, "log_ratio")


class Setting(NamedTuple):
    name: str
    kinds: Kinds
    temperature: float
    num_tasks: int
    num_rollouts: int
    batch_size: int
    method: str = "rao_blackwell"


HELPS = Kinds((0.2, 0.5, 0.8), spread=0.05, binary=True)
MANY = Kinds(tuple(np.linspace(0.1, 0.9, 10).tolist()), spread=0.1, binary=True)
USELESS = Kinds((0.5,) * 8, spread=0.3, binary=True)
NUMBERS = Kinds((-1.0, 0.0, 2.0, 5.0), spread=1.0, noise=4.0)

SETTINGS = (
    Setting("three kinds, binary", HELPS, 0.5, 40, 8, 32),
    Setting("three kinds, binary", HELPS, 0.5, 64, 8, 32),
    Setting("three kinds, binary", HELPS, 0.5, 256, 4, 32),
    Setting("three kinds, binary", HELPS, 0.5, 256, 4, 32, "resampling"),
    Setting("three kinds, binary", HELPS, 0.5, 256, 1, 32, "residual"),
    Setting("ten kinds, binary", MANY, 0.3, 128, 8, 32),
    Setting("ten kinds, binary", MANY, 0.3, 512, 4, 32),
    Setting("four kinds, real numbers", NUMBERS, 0.3, 128, 4, 16),
    Setting("four kinds, real numbers", NUMBERS, 0.3, 512, 2, 32),
    Setting("kernel without information", USELESS, 0.2, 64, 8, 32),
    Setting("kernel without information", USELESS, 0.2, 512, 4, 32),
)


def once(setting: Setting, number: int, num_resamples: int) -> list[float]:
    """The estimates of one table, whether its interval holds the truth, and the error it states."""
    rng = np.random.default_rng([number, setting.num_tasks, setting.num_rollouts])
    rewards, features = sample(setting.kinds, setting.num_tasks, setting.num_rollouts, rng)
    found = effective_batch(
        rewards,
        features,
        temperature=setting.temperature,
        batch_size=setting.batch_size,
        num_resamples=num_resamples,
        seed=number,
        method=setting.method,
    )
    wanted = truth(setting.kinds, setting.batch_size, setting.temperature).ratio
    low, high = found.interval
    stated = float(np.hypot(found.log_error, found.draw_error))
    return [*(getattr(found, name) for name in QUANTITIES), low <= wanted <= high, stated]


def study(setting: Setting, rows: list[list[float]]) -> dict[str, Any]:
    known = truth(setting.kinds, setting.batch_size, setting.temperature)
    table = np.array(rows, float)
    repeats = len(table)
    estimates = np.column_stack([table[:, :4], np.log(table[:, 3])])
    errors = estimates.std(0, ddof=1) / np.sqrt(repeats)
    wanted = np.array([*known, known.ratio, np.log(known.ratio)])
    if setting.method == "residual" and setting.num_rollouts == 1:
        wanted[:3] = np.nan  # known together only
    distance = (estimates.mean(0) - wanted) / errors
    return {
        **setting._replace(kinds=None)._asdict(),
        "kinds": setting.kinds._asdict(),
        "repeats": repeats,
        "truth": dict(zip(QUANTITIES, [*known, known.ratio], strict=True)),
        "standard_errors_off": {
            name: None if np.isnan(z) else round(float(z), 2)
            for name, z in zip(JUDGED, distance, strict=True)
        },
        "ratio_bias": float(estimates[:, 3].mean() / known.ratio - 1),
        "coverage": float(table[:, 4].mean()),
        "coverage_error": float(np.sqrt(0.05 * 0.95 / repeats)),
        "log_ratio_spread": float(estimates[:, 4].std(ddof=1)),
        "log_ratio_error_stated": float(table[:, 5].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    with ProcessPoolExecutor(given.processes) as pool:
        for setting in SETTINGS:
            numbers = range(given.repeats)
            work = pool.map(once, repeat(setting), numbers, repeat(given.resamples), chunksize=20)
            found = study(setting, list(work))
            results.append(found)
            off = " ".join(f"{k} {v}" for k, v in found["standard_errors_off"].items())
            print(
                f"{setting.name}, {setting.num_tasks} x {setting.num_rollouts}, "
                f"B={setting.batch_size}, {setting.method}: ratio {found['truth']['ratio']:.4f}; "
                f"off by (standard errors) {off}; coverage {found['coverage']:.3f}; "
                f"spread {found['log_ratio_spread']:.4f}, stated "
                f"{found['log_ratio_error_stated']:.4f}",
                flush=True,
            )
    if given.json:
        given.json.parent.mkdir(exist_ok=True)
        record = {"repeats": given.repeats, "resamples": given.resamples, "settings": results}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
