"""A kernel that would not be used is refused."""

import pytest

from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian


@pytest.mark.parametrize(
    "values",
    [
        {"basis": "linear"},
        {"system": "pegasos"},
        {"system": "elm"},
        {"basis": "random_features", "feature_kind": "relu"},
    ],
    ids=str,
)
def test_a_kernel_beside_functions_of_their_own_is_refused(values: dict[str, str]) -> None:
    FitRequest(values).settings("classification")
    with pytest.raises(SpecError, match="got --kernel gaussian:2 with the basis"):
        FitRequest({**values, "kernel": "gaussian:2"}).settings("classification")


@pytest.mark.parametrize("values", [{"basis": "linear", "system": "falkon"}, {"system": "pegasos", "landmarks": "7"}])
def test_what_counts_is_the_basis_in_the_end(values: dict[str, str]) -> None:
    if "landmarks" in values:
        values = {**values, "basis": "nystrom_features"}
        assert FitRequest({**values, "kernel": "gaussian:2"}).settings("classification").kernel == Gaussian(2.0)
    else:
        with pytest.raises(SpecError, match="which uses no kernel"):
            FitRequest({**values, "kernel": "gaussian:2"}).settings("classification")


def test_random_features_follow_the_kernel_that_is_given() -> None:
    for values in ({"system": "sgd_rf"}, {"basis": "random_features", "feature_kind": "orthogonal"}, {}):
        settings = FitRequest({**values, "kernel": "gaussian:2"}).settings("classification")
        assert settings.kernel == Gaussian(2.0)


def test_virtual_shards_are_a_whole_number() -> None:
    values = {"kernel": "gaussian:2", "landmarks": 40}
    assert FitRequest({**values, "virtual_shards": "4"}).settings("classification").virtual_shards == 4
    assert FitRequest(values).settings("classification").virtual_shards is None
    with pytest.raises(SpecError, match="virtual_shards"):
        FitRequest({**values, "virtual_shards": "many"}).settings("classification")


@pytest.mark.parametrize(("given", "alpha"), [("auto", "auto"), ("1e-3", 1e-3), (0, 0.0)])
def test_a_penalty_is_a_number_or_auto(given: object, alpha: object) -> None:
    assert FitRequest({"alpha": given}).settings("regression").alpha == alpha


@pytest.mark.parametrize("given", ["best", "nan", "-1", True])
def test_any_other_penalty_is_refused(given: object) -> None:
    with pytest.raises(SpecError, match=r"got alpha=.*; expected a number of 0 or more, or 'auto'"):
        FitRequest({"alpha": given}).settings("regression")


@pytest.mark.parametrize(("given", "groups"), [("auto", "auto"), ("2", 2), (1, 1)])
def test_groups_are_a_number_or_auto(given: object, groups: object) -> None:
    assert FitRequest({"groups": given}).settings("regression").groups == groups


@pytest.mark.parametrize("given", ["two", "nan", "1.5", "0", -1, True, ""])
def test_any_other_number_of_groups_is_refused(given: object) -> None:
    with pytest.raises(SpecError, match=r"got groups=.*; expected a whole number of at least 1, or 'auto'"):
        FitRequest({"groups": given}).settings("regression")
