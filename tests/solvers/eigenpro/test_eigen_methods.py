"""How EigenPro finds its directions, and what checkpoints record of it."""

import json

import numpy as np
import pytest

from daskkern.basis import AllRows, BasisSpec, Linear
from daskkern.errors import SpecError
from daskkern.losses import Squared
from daskkern.solvers import SVRG, EigenPro, Solver
from daskkern.solvers.stored_settings import recorded_settings
from daskkern.systems import SYSTEMS
from tests.support.fits import Fit, toy_settings, toy_source


@pytest.mark.parametrize("basis", [AllRows(), Linear()], ids=["all rows", "linear"])
def test_the_method_reaches_the_set_up(basis: BasisSpec) -> None:
    def values(method: str) -> list[float]:
        solver = EigenPro(subsample=100, n_directions=3, eigen_method=method)
        prepared = Fit.of(toy_source(), toy_settings(basis, solver, Squared(), "float64")).prepared
        return list(prepared.state.eigenvalues)

    dense, krylov, rsvd = (values(method) for method in ("dense", "krylov", "rsvd"))
    np.testing.assert_allclose(krylov, dense, rtol=1e-6)
    np.testing.assert_allclose(rsvd, dense, rtol=0.05)
    if isinstance(basis, AllRows):
        assert rsvd != dense  # two power iterations are not exact


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(SpecError, match="got eigen_method='svd' for EigenPro; choose one of auto, dense, krylov, rsvd"):
        EigenPro(eigen_method="svd")


@pytest.mark.parametrize(
    ("solver", "name", "other"),
    [(EigenPro(), "eigen_method", EigenPro(eigen_method="rsvd")), (SVRG(), "restart", SVRG(restart="random"))],
)
def test_a_later_setting_is_recorded_only_where_it_was_chosen(
    solver: Solver[object], name: str, other: Solver[object]
) -> None:
    assert name not in recorded_settings(solver)
    assert recorded_settings(other)[name] == getattr(other, name)
    summary = toy_settings(AllRows(), other, Squared(), "float64").summary()
    assert json.loads(json.dumps(summary))["solver"][name] == getattr(other, name)


def test_the_systems_over_features_damp_as_the_paper_does() -> None:
    linear, random = (SYSTEMS[name].solver for name in ("linear_eigenpro", "eigenpro_rf"))
    assert (linear, random) == (EigenPro(rho=1.0, tau=1.0), EigenPro(rho=1.0, tau=0.25))
    for solver in (linear, random):
        wanted = solver.spectrum(10_000, 100_000, explicit=True)
        assert (wanted.rows, wanted.most) == (4800, 160)
