"""What Falkon spends to be sure of its answer: wider products in few passes, and a factor in the dtype of the fit."""

from typing import Any

import numpy as np
import pytest

from daskkern import KernelClassifier
from daskkern.basis import Landmarks
from daskkern.kernels import Laplacian
from daskkern.linalg import LowerFactor, cholesky
from daskkern.solvers.falkon import FalkonSetup
from daskkern.solvers.rows import double_product
from tests.support import naive

ROWS, LANDMARKS = 200, 40


def _fit(epochs: int, classes: int) -> KernelClassifier:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 4))
    y = (X[:, 0] * 10 + X[:, 1] * 3).round().astype(int) % classes
    model = KernelClassifier(
        Laplacian(3.0), basis=Landmarks(LANDMARKS), solver="falkon", loss="squared", alpha=1e-6, max_epochs=epochs,
        batch_size=ROWS, device="cpu", random_state=0,
    )  # fmt: skip
    model.fit(X, y)
    return model


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("classes", "wide"), [(10, [10, 12]), (3, range(2, 13))], ids=["many outputs", "few outputs"])
def test_with_many_outputs_one_pass_in_ten_has_the_products_of_the_model(
    classes: int, wide: range | list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = list[int]()

    def counted(part: Any, batch: Any, V: Any, between: Any) -> Any:
        widths.append(V.shape[1])
        return double_product(part, batch, V, between)

    monkeypatch.setattr("daskkern.solvers.falkon.squared.double_product", counted)
    _fit(12, classes)
    assert widths == [2 * classes if number in wide else classes for number in range(1, 13)]


def test_the_factor_is_made_in_the_dtype_of_the_fit_and_used_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    made, used = list[tuple[str, LowerFactor]](), list[FalkonSetup]()

    def kept(panels: Any, layout: Any, jitter: Any, comm: Any, dtype: str, xp: Any) -> LowerFactor:
        assert {panel.dtype.name for panel in panels} == {dtype}
        made.append((dtype, cholesky(panels, layout, jitter, comm, dtype, xp)))
        return made[-1][1]

    def seen(*given: Any) -> FalkonSetup:
        used.append(FalkonSetup(*given))
        return used[-1]

    monkeypatch.setattr("daskkern.solvers.falkon.setup.cholesky", kept)
    monkeypatch.setattr("daskkern.solvers.falkon.setup.FalkonSetup", seen)
    model = _fit(1, 3)
    assert made[0][0] == "float32"
    lower = used[0].part.lower
    assert {array.dtype.name for array in (*lower.panels, *lower.corners)} == {"float64"}
    inverse = lower.solve(np.eye(LANDMARKS))
    K = naive.kernel_matrix(Laplacian(3.0).spec(), model.landmarks_, model.landmarks_) + lower.jitter * np.eye(
        LANDMARKS
    )
    np.testing.assert_allclose(inverse @ K @ inverse.T, np.eye(LANDMARKS), atol=1e-3)
    np.testing.assert_allclose(lower.solve_transposed(np.eye(LANDMARKS)), inverse.T, rtol=1e-12, atol=1e-12)
