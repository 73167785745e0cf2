"""Third outcomes that are known: expected failures, each with its ratio and the reason. The list has to shrink.

``misses.txt`` has a line for each: the key of the case, error over the largest error that is right, and the name of its
reason. ``python -m tests.nasty PAGE --misses`` writes it from the records. A case with a ratio above :data:`CLEAR`
fails its test when it becomes right: take its line out. Nearer to 1, rounding of another processor may decide.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.nasty.outcomes import Outcome
from tests.nasty.ways import METHODS

CLEAR = 1.1
_FILE = Path(__file__).with_name("misses.txt")

REASONS = {
    "default": "one extreme row spoils the fit of the defaults to the others; the cause is not known yet",
    "epochs": "the method has not converged, and its losses do not tell: they hardly fall, or fell further elsewhere",
    "noise": "constant steps, whose noise a few large targets or weights make larger than the margin",
    "rounding": "float32 keeps too few digits of kernel values that are huge or nearly equal",
    "model": "AMM has several weights for each class: another model than the reference's, here a worse one",
    "unknown": "not looked into yet",
}

_SLOW = (
    "sgd",
    "adagrad",
    "norma",
    "nytro",
    "bsgd",
    "doubly_sgd",
    "pegasos",
    "svrg",
    "s2gd",
    "sarah",
    "mixed_gradient",
    "sag",
    "miso",
    "preconditioned_svrg",
)
_HARD = ("offset 1e6", "feature times 1e6", "constant columns", "one row far off", "near-singular kernel")


@dataclass(frozen=True)
class Miss:
    """A third outcome: `ratio` is its error over the largest one that is right."""

    key: str
    ratio: float
    reason: str

    @property
    def is_clear(self) -> bool:
        """Whether another processor finds the same."""
        return self.ratio > CLEAR


def misses() -> dict[str, Miss]:
    """Return the known third outcomes by the keys of their cases."""
    lines = (line.split("\t") for line in _FILE.read_text().splitlines())
    return {key: Miss(key, float(ratio), reason) for key, ratio, reason in lines}


def write(outcomes: Iterable[Outcome]) -> None:
    """Write the third outcomes among `outcomes`; those that are known keep their reason."""
    before = misses()
    lines = []
    for outcome in sorted(outcomes, key=lambda one: one.key):
        if outcome.kind in ("wrong", "error"):
            known = before.get(outcome.key)
            reason = known.reason if known and known.reason != "unknown" else _guess(outcome)
            lines.append(f"{outcome.key}\t{outcome.excess:.3g}\t{reason}\n")
    _FILE.write_text("".join(lines))


def _guess(outcome: Outcome) -> str:
    way, data, _, method = outcome.key.split(" / ")
    if way == "defaults":
        return "default"
    if method == "amm":
        return "model"
    if way != "written out" and data in _HARD:
        return "rounding"
    if METHODS[method].solver in _SLOW:
        return "epochs"
    return "noise" if method in ("auto", "eigenpro", "nystrom_sgd") else "unknown"
