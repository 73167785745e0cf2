"""Groups of ranks that hold the whole model each and divide the batches: the answer of one rank, also after a loss."""

from typing import Any

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Landmarks, NystromFeatures, RandomFeatures
from daskkern.events import FitStarted
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import SARAH, SGD, SVRG, AdaGrad, EigenPro, NystromSGD, Solver
from tests.support.fits import Fit, toy_settings, toy_source

FITS: dict[str, tuple[BasisSpec, Solver[Any], Loss]] = {
    "a factor": (Landmarks(60), EigenPro(window=3), Logistic()),
    "iteration": (Landmarks(60), EigenPro(projection="eigenpro", window=2), Logistic()),
    "a projection each step": (Landmarks(60), EigenPro(window=1, momentum=0.5), Squared()),
    "all rows": (AllRows(), EigenPro(), Logistic()),
    "features": (RandomFeatures(60), EigenPro(), Logistic()),
    "sgd over features": (RandomFeatures(60), SGD(), Logistic()),
    "sgd over all rows": (AllRows(), SGD(), Logistic()),
    "adagrad": (RandomFeatures(60), AdaGrad(), Logistic()),
    "svrg": (RandomFeatures(60), SVRG(), Logistic()),
    "sarah": (AllRows(), SARAH(), Logistic()),
    "streamed eigenfeatures": (Landmarks(60), NystromSGD(mode="streamed"), Logistic()),
    "mapped features": (NystromFeatures(60), EigenPro(), Logistic()),
}


@pytest.mark.parametrize("name", FITS)
def test_the_answer_is_that_of_one_rank(name: str) -> None:
    shared = Fit.of(toy_source(weighted=True), toy_settings(*FITS[name]))
    one, seen = shared.scores(shared.results(1)), []
    for ranks, groups in ((4, 2), (2, 2), (6, 3)):
        results = shared.results(ranks, groups=groups, listen=seen.append)
        assert [result.ids.size > 0 for result in results] == [rank < ranks // groups for rank in range(ranks)]
        scores = shared.scores(results)
        np.testing.assert_allclose(scores, one, rtol=0, atol=1e-10 * np.abs(one).max())
    assert [(event.size, event.groups) for event in seen if isinstance(event, FitStarted)] == [(4, 2), (2, 2), (6, 3)]
