"""Can the design decide at all? What to expect of a decision before anything is trained."""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

import numpy as np

from advlib import _checks
from advlib.diagnostics._decision import half_width


class Power(NamedTuple):
    """Chances of the verdicts, and what each takes.

    Attributes:
        validated: chance of "validated".
        failed: chance of "failed".
        inconclusive: chance of "inconclusive".
        half_width: of the decision's interval.
        net_to_validate: smallest number of net items (solved by the treatment only, minus by the
            baseline only) that validates; more than ``num_items`` where nothing can.
        net_to_fail: largest number of net items that fails; less than ``-num_items`` where nothing
            can.
    """

    validated: float
    failed: float
    inconclusive: float
    half_width: float
    net_to_validate: int
    net_to_fail: int


def decision_power(
    num_items: int,
    *,
    difference: float = 0.0,
    discordance: float = 0.15,
    margin: float = -0.05,
    alpha: float = 0.05,
    num_criteria: int = 1,
) -> Power:
    """Chances of each verdict for items that are solved or not.

    An item is solved by the treatment only with chance (discordance + difference) / 2, by the
    baseline only with (discordance - difference) / 2. The distribution of the net number is exact.

    Args:
        num_items: n.
        difference: true difference of the success rates.
        discordance: share of items on which the arms disagree.
        margin: of the decision.
        alpha: of the decision.
        num_criteria: of the decision.

    Returns:
        A :class:`Power`.

    Raises:
        ValueError: the discordance is less than the difference, or an option is out of range.
    """
    _checks.number("num_items", num_items, 1)
    _checks.number("difference", difference, -1, 1)
    _checks.number("discordance", discordance, abs(difference), 1)
    width = half_width(num_items, alpha=alpha, num_criteria=num_criteria)
    net = np.arange(-num_items, num_items + 1)
    mean = net / num_items
    above, below = mean - width > margin, mean + width < margin
    chances = _net_chances(
        num_items, (discordance + difference) / 2, (discordance - difference) / 2
    )
    validated, failed = float(chances[above].sum()), float(chances[below].sum())
    return Power(
        validated,
        failed,
        float(chances[~above & ~below].sum()),
        width,
        int(net[above].min()) if above.any() else ceil((margin + width) * num_items),
        int(net[below].max()) if below.any() else floor((margin - width) * num_items),
    )


def _net_chances(count: int, win: float, loss: float) -> np.ndarray:
    """Distribution of the sum of ``count`` steps +1, 0, -1, from its characteristic function."""
    size = 2 * count + 1
    angle = 2 * np.pi * np.arange(size) / size
    step = (1 - win - loss) + win * np.exp(1j * angle) + loss * np.exp(-1j * angle)
    chances = np.fft.fft(step**count).real / size
    return np.clip(np.roll(chances, count), 0.0, 1.0)
