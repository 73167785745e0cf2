"""Every public estimator is given scikit-learn's own checks by a test."""

import ast
from pathlib import Path

from sklearn.base import BaseEstimator

import daskkern

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
