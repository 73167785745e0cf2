"""A fit in JupyterLab, looked at in a headless browser: one output, in place, that ends as text; and its interrupt."""

from pathlib import Path

import pytest

from tests.support.notebooks.jupyter import Notebook, missing, notebook

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=f"no JupyterLab in a headless browser: {missing()}"),
]

CELLS = (
    """
import numpy as np
from distributed import Client, LocalCluster
from daskkern import KernelClassifier, Landmarks
X = np.random.default_rng(0).standard_normal((4000, 20)).astype("float32")
y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)
settings = {"kernel": "gaussian:median", "basis": Landmarks(400), "verbose": True, "max_epochs": 5000}
""",
    'model = KernelClassifier(checkpoint="progress.zarr", **settings).fit(X, y)',
    "print(model.stop_reason_, model.n_iter_, model.score(X, y) > 0.8)",
    """
before = model.n_iter_
model.set_params(max_epochs=before + 2, warm_start=True).fit(X, y)
print(model.stop_reason_, model.n_iter_ - before)
""",
    'client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))',
    "clustered = KernelClassifier(client=client, **settings).fit(X, y)",
    "print(clustered.stop_reason_, clustered.score(X, y) > 0.8)",
    "client.cluster.close(); client.close(); model.model_",
)


def _interrupted(page: Notebook, cell: int) -> str:
    """Run a cell that fits, check what it shows meanwhile, interrupt it, and return what it shows at the end."""
    page.begin(cell)
    page.wait(cell, "\n  epoch   2/5000")
    (shown,) = page.wait(cell, "batch ")  # a single output, which is replaced
    assert "━" in shown
    page.interrupt()
    (left,) = page.end(cell)
    assert "━" not in left
    assert left.startswith("eigenpro: ")
    assert "stopping within a few steps" in left
    assert left.splitlines()[-1].startswith("ended (interrupted) after ")
    return left


def test_a_fit_in_a_notebook_is_one_output_and_an_interrupt_leaves_a_model(tmp_path: Path) -> None:
    with notebook(tmp_path, CELLS) as page:
        page.begin(0)
        assert page.end(0) == []
        assert "on 1 rank\n" in _interrupted(page, 1)
        page.begin(2)
        assert page.end(2)[0].startswith("interrupted ")
        assert page.end(2)[0].endswith(" True")
        page.begin(3)
        resumed, printed = page.end(3)
        assert "going on after batch " in resumed
        assert printed == "max_epochs 2"
        page.begin(4)
        page.end(4)  # with a warning, where another dashboard has the usual port
        assert "on 2 ranks\n" in _interrupted(page, 5)
        page.begin(6)
        assert page.end(6) == ["interrupted True"]
        page.begin(7)
        assert page.end(7)[-1].startswith("KernelModel\n")  # after a warning of workers that end slowly
