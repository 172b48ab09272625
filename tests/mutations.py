"""Break the core on purpose, one way at a time, and see whether the tests notice.

Run by hand from anywhere: ``python tests/mutations.py [name ...]``. Every mutation is applied in a
temporary copy of the repository, where the named tests run until the first failure. The exit status
is 1 if a mutation survives, or if its text is no longer found once in its file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """One mistake: what is written instead of what, and who should object."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    select: str = ""


LAWS, REPORTS = "tests/test_laws.py", "tests/test_bug_reports.py"
CONFORMANCE, SHARDING = "tests/test_conformance.py", "tests/test_sharding.py"
TOKENS, CHECKS = "tests/test_token_laws.py", "tests/test_checks.py"
SEGMENTS, BATCH = "advlib/_segments.py", "advlib/_batch.py"
RELATIVE, SCALED = "advlib/estimators/_relative.py", "advlib/estimators/_scaled.py"
GAR, RANK = "advlib/estimators/_gar.py", "advlib/estimators/_rank.py"
STANDING, TOKEN = "advlib/estimators/_standing.py", "advlib/estimators/_token.py"

MUTATIONS = [
    Mutation(
        "masked rows vote",
        SEGMENTS,
        "valid = valid & where\n",
        "valid = valid & (where | True)\n",
        REPORTS,
        "numbers",
    ),
    Mutation(
        "masked rewards reach arithmetic",
        SEGMENTS,
        "unit = jnp.where(rows, rewards - per_row[:, 0], 0) / per_row[:, 1]",
        "unit = (rewards - per_row[:, 0]) / per_row[:, 1]",
        LAWS,
        "poison and group_mean",
    ),
    Mutation(
        "id out of range wraps around",
        SEGMENTS,
        "valid = (ids >= 0) & (ids < num_groups)",
        "valid = ids < num_groups",
        LAWS,
        "out_of_range and leave_one_out",
    ),
    Mutation(
        "no guard for constant groups",
        SEGMENTS,
        "return (highest - lowest <= tolerance * magnitude) & (magnitude < jnp.inf)",
        "return highest < lowest",
        REPORTS,
        "constant_groups",
    ),
    Mutation(
        "constant means equal to the last bit",
        SEGMENTS,
        "return (highest - lowest <= tolerance * magnitude) & (magnitude < jnp.inf)",
        "return highest == lowest",
        REPORTS,
        "constant_groups",
    ),
    Mutation(
        "minimum instead of maximum",
        SEGMENTS,
        "top = jax.ops.segment_max(",
        "top = jax.ops.segment_min(",
        REPORTS,
        "numbers or BR-94 or br_94",
    ),
    Mutation(
        "sums stay on their device",
        SEGMENTS,
        "return jax.lax.psum(total, self.axes) if self.axes else total",
        "return total",
        SHARDING,
        "span_devices and group_mean",
    ),
    Mutation(
        "maxima stay on their device",
        SEGMENTS,
        "return jax.lax.pmax(top, self.axes) if self.axes else top",
        "return top",
        SHARDING,
        "span_devices and hack_floor",
    ),
    Mutation(
        "padding counts as data",
        BATCH,
        "where=np.pad(batch.valid, (0, extra))",
        "where=np.pad(batch.valid, (0, extra), constant_values=True)",
        REPORTS,
        "numbers",
    ),
    Mutation(
        "a program for every size",
        BATCH,
        "return max(8, 1 << (size - 1).bit_length()) if size else 8",
        "return max(8, size)",
        REPORTS,
        "br_95",
    ),
    Mutation(
        "values are not looked at",
        BATCH,
        "    _check_values(batch, columns)\n",
        "",
        CHECKS,
        "not_finite and group_mean",
    ),
    Mutation(
        "ddof the other way round",
        RELATIVE,
        "stats.num_valid - ddof, 1",
        "stats.num_valid - (1 - ddof), 1",
        REPORTS,
        "numbers",
    ),
    Mutation(
        "the sample is among its own peers",
        RELATIVE,
        "return count / jnp.where(count > 1, count - 1, 1)",
        "return jnp.ones_like(count)",
        REPORTS,
        "numbers",
    ),
    Mutation(
        "masked rows get an advantage",
        RELATIVE,
        "return jnp.where(groups.valid, jnp.where(alone, instead, advantages), 0)",
        "return jnp.where(alone, instead, advantages)",
        LAWS,
        "fallback",
    ),
    Mutation(
        "eps under the root",
        SCALED,
        "divisor = jnp.where(stats.constant, 1, std + eps)",
        "divisor = jnp.where(stats.constant, 1, jnp.sqrt(std * std + eps))",
        CONFORMANCE,
        "group_vectors and core",
    ),
    Mutation(
        "batch and group scale swapped",
        SCALED,
        'if scale == "batch":',
        'if scale == "group":',
        REPORTS,
        "numbers",
    ),
    Mutation(
        "a negative mean divides",
        RELATIVE,
        "positive = mean > 0\n",
        "positive = mean != 0\n",
        LAWS,
        "max_rl",
    ),
    Mutation(
        "no re-centring",
        GAR,
        "advantages = (redistributed - groups.rows(centre)) * groups.rows(stats.scale)",
        "advantages = redistributed * groups.rows(stats.scale)",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "hacks drop to zero",
        GAR,
        "floor = groups.rows(spread(counted, rewards).lowest)",
        "floor = jnp.zeros_like(rewards)",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "no cap",
        GAR,
        "jnp.minimum(ratio, lambda_max)",
        "ratio",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "the ranking may include failures",
        GAR,
        "ranked = groups.only(passed & ~hacks & (tiers >= 0))",
        "ranked = groups.only(~hacks & (tiers >= 0))",
        LAWS,
        "reference and gar",
    ),
    Mutation(
        "the unranked have lost",
        GAR,
        "jnp.where(ranked.valid, rates, 0.5)",
        "jnp.where(ranked.valid, rates, 0.0)",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "traces count as candidates",
        GAR,
        "counted = leads if by_candidate else groups",
        "counted = groups",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "the untiered are in the mean",
        RANK,
        "counted = tiered.only(whose.first)",
        "counted = groups.only(whose.first)",
        CONFORMANCE,
        "float32",
    ),
    Mutation(
        "the last tier's own gap counts",
        RANK,
        "column[None, :] < last[:, None]",
        "column[None, :] <= last[:, None]",
        LAWS,
        "reference and rank_margin",
    ),
    Mutation(
        "a tie is a win",
        STANDING,
        "0.5 * (same - 1).astype(dtype)",
        "1.0 * (same - 1).astype(dtype)",
        CONFORMANCE,
        "rank_vectors and core",
    ),
    Mutation(
        "masked tokens are not skipped by blocks",
        TOKEN,
        "word = jnp.where(mask, jnp.uint32(1) << place, jnp.uint32(0))",
        "word = jnp.uint32(1) << place",
        TOKENS,
        "gae",
    ),
    Mutation(
        "masked tokens are not skipped one by one",
        TOKEN,
        "return jnp.where(kept, gain + decay * later, later), later",
        "return gain + decay * later, later",
        TOKENS,
        "gae",
    ),
    Mutation(
        "nothing follows the last token",
        TOKEN,
        "last = jnp.broadcast_to(bootstrap, rewards.shape[:-1])[..., None]",
        "last = jnp.zeros((*rewards.shape[:-1], 1), rewards.dtype)",
        TOKENS,
        "without_a_mask",
    ),
    Mutation(
        "whitening by shard",
        "advlib/masking.py",
        "mean = _masked_mean(shifted, mask, axis=None, axes=axes)",
        "mean = _masked_mean(shifted, mask, axis=None, axes=())",
        SHARDING,
        "whitening",
    ),
    Mutation(
        "the end token is padding",
        "advlib/masking.py",
        "return jnp.cumsum(count, axis=-1) == count",
        "return jnp.cumsum(count, axis=-1) == 0",
        REPORTS,
        "first_end",
    ),
]


def run(mutation: Mutation, copy: Path) -> tuple[str, float]:
    """What became of one mutation, and after how many seconds."""
    path = copy / mutation.file
    original = path.read_text(encoding="utf-8")
    if original.count(mutation.old) != 1:
        return f"TEXT FOUND {original.count(mutation.old)} TIMES", 0.0
    path.write_text(original.replace(mutation.old, mutation.new), encoding="utf-8")
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", mutation.tests]
    if mutation.select:
        command += ["-k", mutation.select]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    path.write_text(original, encoding="utf-8")
    seconds = time.monotonic() - started
    if done.returncode == 0:
        return "SURVIVED", seconds
    failed = re.search(r"^FAILED \S+::(.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        return f"TESTS DID NOT RUN (status {done.returncode})", seconds
    return f"caught by {failed[1]}", seconds


def main(names: list[str]) -> int:
    """Run the named mutations, or all of them, and print what became of each."""
    chosen = [m for m in MUTATIONS if not names or m.name in names]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        skip = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site", "*.ipynb")
        shutil.copytree(ROOT, copy, ignore=skip)
        for mutation in chosen:
            outcome, seconds = run(mutation, copy)
            bad += not outcome.startswith("caught")
            print(f"{mutation.name:42s} {outcome}  ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} mutations caught")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
