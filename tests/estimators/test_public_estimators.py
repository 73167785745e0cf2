"""Every public estimator is given scikit-learn's own checks by a test."""

import ast
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone

import daskkern
from daskkern import AutoKernelClassifier, KernelClassifier, KernelDensity, KernelFeatures, KernelPCA

TESTS = Path(__file__).parents[1]


def _public() -> set[str]:
    public = {name: getattr(daskkern, name) for name in daskkern.__all__}
    return {name for name, found in public.items() if isinstance(found, type) and issubclass(found, BaseEstimator)}


def _checked(path: Path) -> set[str]:
    """Return the names that are called within ``parametrize_with_checks(...)`` in a file."""
    uses = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "parametrize_with_checks"
    ]
    calls = [node for use in uses for node in ast.walk(use) if isinstance(node, ast.Call)]
    return {node.func.id for node in calls if isinstance(node.func, ast.Name)}


def test_scikit_learns_checks_are_given_to_every_public_estimator() -> None:
    public = _public()
    assert {"KernelClassifier", "KernelRegressor", "KernelFeatures", "KernelPCA"} <= public
    checked = set().union(*(_checked(path) for path in TESTS.rglob("test_*.py")))
    assert public <= checked, f"no test gives {public - checked} to parametrize_with_checks"


@pytest.mark.parametrize("kind", [KernelClassifier, AutoKernelClassifier, KernelDensity])
def test_clones_keep_their_requests_of_metadata(kind: type) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        requests = clone(kind().set_fit_request(sample_weight="w")).get_metadata_routing()
        assert requests.fit.requests["sample_weight"] == "w"


@pytest.mark.parametrize("estimator", [KernelPCA(2), KernelFeatures("gaussian:1", 4)])
def test_clones_keep_the_container_of_their_outputs(estimator: BaseEstimator) -> None:
    copy = clone(estimator.set_output(transform="pandas"))
    assert list(copy.fit_transform(np.random.default_rng(0).standard_normal((30, 3))).columns)
