"""Where a question goes in the wording of a prompt."""

from __future__ import annotations

NAMED, BARE = "{question}", "{}"


def around(wording: str) -> tuple[str, str]:
    r"""What stands before a question and after it.

    Args:
        wording: of a prompt; ``{question}`` is where the question goes, or ``{}`` where that does
            not occur. With the first, the wording may ask for ``\boxed{}``.

    Returns:
        The text before the place, and the text after it.

    Raises:
        ValueError: there is not exactly one such place.
    """
    place = NAMED if NAMED in wording else BARE
    if wording.count(place) != 1:
        raise ValueError(
            f"wording must hold one {NAMED}, or one {BARE}, where the question goes; "
            f"got {wording!r}"
        )
    before, after = wording.split(place)
    return before, after
