"""The chi-squared kernels on a GPU, or on its stand-in: negative features are noticed, and no batch waits for that."""

from types import ModuleType

import numpy as np
import pytest
import scipy.sparse

from daskkern.backend.namespace import to_device, to_host
from daskkern.basis import Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.kernels import AdditiveChiSquared, ChiSquared, Gaussian
from daskkern.losses import Squared
from daskkern.models import KernelModel
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import waits_counted

REFUSED = "features of 0 or more, but found negative ones"


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_negative_features_are_refused_or_give_no_numbers(xp: ModuleType, sparse: bool) -> None:
    X = np.random.default_rng(0).uniform(size=(20, 5))
    wrong = X.copy()
    wrong[7, 2] = -1e-3
    rows, bad = (to_device(scipy.sparse.csr_array(table) if sparse else table, xp) for table in (X, wrong))
    for kernel in (ChiSquared(0.5), AdditiveChiSquared(), 2 * ChiSquared(0.5) + Gaussian(2.0)):
        with pytest.raises(DataError, match=REFUSED):
            kernel.points(bad)
        with pytest.raises(DataError, match=REFUSED):
            kernel.check_rows(scipy.sparse.csr_array(wrong) if sparse else wrong)
        kernel.check_rows(X)
        points = kernel.points(rows)
        with waits_counted() as waits:
            found = kernel.matvec(kernel.left(bad, points), points, xp.ones((20, 1)))
        assert not waits
        assert np.flatnonzero(np.isnan(to_host(found)[:, 0])).tolist() == [7]
        np.testing.assert_allclose(to_host(found)[:7, 0], kernel.block(X, X)[:7].sum(axis=1), rtol=1e-12)


def test_a_fit_and_a_model_name_negative_features(xp: ModuleType) -> None:
    X = np.random.default_rng(0).uniform(size=(2000, 4))
    X[-1, 1] = -1.0  # a row of a late batch
    info = SourceInfo(2000, 4, "regression", None, Scaling(), None, 1, True)
    settings = FitSettings(
        ChiSquared(1.0), Squared(), Landmarks(20), EigenPro(), max_epochs=1, batch_size=500, device="gpu",
        dtype="float64", keep_blocks="never",
    )  # fmt: skip
    with pytest.raises(DataError, match=REFUSED):
        fit(ArraySource(X, X[:, 0], None, info), settings)
    model = KernelModel(ChiSquared(1.0), X[:30], np.ones((30, 1)), "squared", "regression", None)
    with pytest.raises(DataError, match=REFUSED):
        model.on("gpu").predict(X)
