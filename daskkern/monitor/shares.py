"""The parts that make up the time of an epoch, and their labels."""

from collections.abc import Iterable, Mapping

from daskkern.events import PARTS_OF_TIME, EpochTimed

_WORDS = ("computing", "waiting for rows", "keeping checkpoints", "waiting for slower ranks", "exchanging sums")
PARTS: Mapping[str, str] = dict(zip(PARTS_OF_TIME, _WORDS, strict=True))
"""The label of each part."""

_LEAST = 0.0005
"""Smaller shares would be shown as 0.0%."""


def shares_of(times: Iterable[EpochTimed]) -> dict[str, float]:
    """Return the share of each part in the time of all `times`, in [0, 1]; {} for no time."""
    epochs = list(times)
    total = sum(epoch.seconds for epoch in epochs)
    return {part: sum(getattr(epoch, part) for epoch in epochs) / total for part in PARTS} if total > 0 else {}


def in_words(shares: Mapping[str, float]) -> str:
    """Return ``"61.2% computing, 38.8% waiting for rows"``: the parts that took time, in their order."""
    labeled = [(shares.get(part, 0.0), words) for part, words in PARTS.items()]
    return ", ".join(f"{100 * share:.1f}% {words}" for share, words in labeled if share >= _LEAST)
