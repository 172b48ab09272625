"""The mean of all rollouts, with an interval that knows that rollouts of one task are alike."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from advlib import _checks


class ClusteredMean(NamedTuple):
    """A mean over values that come in clusters.

    Attributes:
        mean: of all values; None where there are none.
        lower: lower bound; None without an interval.
        upper: upper bound; None without an interval.
        std_error: of the mean, for other clusters of the same kind; None without an interval.
        num_values: values.
        num_clusters: clusters with a value.
        no_interval: why there is none; None where there is one.
    """

    mean: float | None
    lower: float | None
    upper: float | None
    std_error: float | None
    num_values: int
    num_clusters: int
    no_interval: str | None


def clustered_mean(values: Any, cluster_ids: Any, *, confidence: float = 0.95) -> ClusteredMean:
    """The mean of all values, and a cluster-robust interval for other clusters of the same kind.

        m = Σ_c S_c / N,   se² = K/(K-1) Σ_c (S_c - m n_c)² / N²,   m ± t_{K-1} se

    with the sum S_c and the size n_c of each of K clusters, and N = Σ_c n_c. Where all clusters are
    of one size this is Student's interval for the mean of the cluster means.

    Args:
        values: (B,) finite numbers.
        cluster_ids: (B,) integers, equal where values belong together, such as one task's.
        confidence: of the interval.

    Returns:
        :class:`ClusteredMean`, without an interval where fewer than two clusters have a value, or
        where all clusters have one mean: a spread of zero was not measured, it was not seen.

    Raises:
        ValueError: lengths differ, a value is not finite, or confidence is out of range.

    Source: K.-Y. Liang, S. Zeger, "Longitudinal data analysis using generalized linear models",
    Biometrika 73, 1986, for a mean, with the usual correction for few clusters.
    """
    from scipy.special import stdtrit

    numbers = np.asarray(_checks.as_numpy("values", values), np.float64)
    clusters = _checks.as_numpy("cluster_ids", cluster_ids)
    if numbers.ndim != 1 or clusters.shape != numbers.shape:
        raise ValueError(
            "values and cluster_ids must have the same length; got shapes "
            f"{numbers.shape} and {clusters.shape}"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"values must be finite; {_checks.rows(~np.isfinite(numbers))}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    if not numbers.size:
        return ClusteredMean(None, None, None, None, 0, 0, "there is no value")
    _, at = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(at)
    many, mean = len(sizes), float(numbers.mean())
    if many < 2:
        why = "one task alone says nothing about others"
        return ClusteredMean(mean, None, None, None, numbers.size, many, why)
    off = np.bincount(at, numbers - mean)
    error = sqrt(many / (many - 1) * float(np.square(off).sum())) / numbers.size
    if error <= 1e-12 * max(1.0, abs(mean)):
        why = "all tasks have the same mean, so their spread is unknown"
        return ClusteredMean(mean, None, None, None, numbers.size, many, why)
    half = float(stdtrit(many - 1, (1 + confidence) / 2)) * error
    return ClusteredMean(mean, mean - half, mean + half, error, numbers.size, many, None)
