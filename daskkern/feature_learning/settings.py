"""The settings of feature learning."""

from dataclasses import dataclass

from daskkern.backend.python_numbers import set_python_numbers
from daskkern.errors import SpecError

METRICS = ("auto", "diagonal", "full")
"""Which metrics M may be learned: "auto" tries what suits kernel and rows, and held-out rows choose."""


SAMPLED_ROWS = 20_000


@dataclass(frozen=True)
class FeatureLearning:
    """How a fit learns the metric of its kernel from its rows before it begins.

    Attributes
    ----------
    metric : "auto", "diagonal" or "full"
        "diagonal" learns one weight per feature, for any kernel with a length scale and for sparse rows too. "full"
        learns directions as well, for radial kernels and dense rows.
    rank : int or None
        Most directions of a full metric; None keeps up to 256.
    n_iter : int
        Most rounds of a solve and a new metric. Held-out rows choose the round, round 0 (no metric) among them.
    n_rows : int or "all"
        Rows that it learns from: a random sample of the training rows. With "all", a sample of 20,000 rows chooses
        kernel, round and penalty, and one pass over all rows then makes the metric of that round.
    n_landmarks : int
        Landmarks of the solves on these rows.
    """

    metric: str = "auto"
    rank: int | None = None
    n_iter: int = 4
    n_rows: int | str = SAMPLED_ROWS
    n_landmarks: int = 1000

    def __post_init__(self) -> None:
        set_python_numbers(self)
        if self.metric not in METRICS:
            raise SpecError(f"got learn_features with metric={self.metric!r}; expected one of {', '.join(METRICS)}")
        least = {"rank": 1, "n_iter": 1, "n_rows": 20, "n_landmarks": 2}
        for name, bound in least.items():
            value = getattr(self, name)
            if (name == "rank" and value is None) or (name == "n_rows" and value == "all"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < bound:
                also = ", or 'all'" if name == "n_rows" else ""
                raise SpecError(
                    f"got learn_features with {name}={value!r}; expected a whole number of {bound} or more{also}"
                )

    @property
    def of_all_rows(self) -> bool:
        """Whether a pass over all rows makes the metric."""
        return self.n_rows == "all"

    @property
    def n_sampled(self) -> int:
        """Most rows of the sample."""
        return SAMPLED_ROWS if isinstance(self.n_rows, str) else self.n_rows


def parse_feature_learning(value: object) -> FeatureLearning | None:
    """Return the settings for None, False, True, the name of a metric, or settings themselves; SpecError for others."""
    if value is None or value is False:
        return None
    if isinstance(value, FeatureLearning):
        return value
    if value is True:
        return FeatureLearning()
    if isinstance(value, str):
        return FeatureLearning(metric=value)
    raise SpecError(f"got learn_features={value!r}; expected True, one of {', '.join(METRICS)}, or a FeatureLearning")
