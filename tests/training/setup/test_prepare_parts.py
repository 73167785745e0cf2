"""What the set-ups of all solvers share."""

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.training.setup.shared import fewer_columns


@pytest.mark.parametrize(
    ("basis", "found", "said"),
    [
        (Landmarks(100), 100, ""),
        (Landmarks(5000), 400, " (landmarks=5,000, but there are 400 training rows)"),
        (NystromFeatures(5000), 390, " (landmarks=5,000, but there are 400 training rows)"),
        (Landmarks(100), 90, " (landmarks=100; repeated or dependent ones are left out)"),
        (Landmarks(points=np.ones((500, 2))), 1, " (landmarks=500; repeated or dependent ones are left out)"),
        (Landmarks(points=np.eye(3)), 3, ""),
        (AllRows(), 400, ""),
        (RandomFeatures(5000), 5000, ""),
        (Linear(), 3, ""),
    ],
)
def test_fewer_landmarks_are_explained(basis: BasisSpec, found: int, said: str) -> None:
    assert fewer_columns(basis, 400, found) == said
