"""How kernels are named, written down, read back and refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from daskkern.errors import DataError, SpecError
from daskkern.kernels import (
    KERNELS,
    ArcCosine,
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    LinearKernel,
    Matern,
    NeuralTangent,
    Polynomial,
    RationalQuadratic,
    from_spec,
    parse_kernel,
)

ROWS = np.random.default_rng(0).standard_normal((50, 4))


@pytest.mark.parametrize("name", KERNELS)
def test_every_row_of_the_table_survives_its_spec(name: str) -> None:
    kernel = KERNELS[name].kernel()
    assert kernel.name == name
    assert from_spec(kernel.spec()) == kernel
    if hasattr(kernel, "length_scale"):  # a name alone: 1 would be in the units of features
        assert parse_kernel(name) == replace(kernel, length_scale="median")
    else:
        assert parse_kernel(name) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    resolved = kernel.resolve(ROWS)
    assert from_spec(resolved.spec()) == resolved


@given(scale=st.floats(1e-6, 1e6), name=st.sampled_from(["gaussian", "laplacian", "cauchy"]))
def test_a_length_scale_is_read_as_it_was_written(scale: float, name: str) -> None:
    assert parse_kernel(f"{name}:{scale!r}").spec() == {"name": name, "length_scale": scale}


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("gaussian:5", Gaussian(5.0)),
        (" Laplacian : 10 ", Laplacian(10.0)),
        ("cauchy:1e-1", Cauchy(0.1)),
        ("polynomial:4", Polynomial(4)),
        ("arc_cosine:1", ArcCosine()),
        ("arc_cosine:0", ArcCosine(0)),
        ("matern12:2", Matern(2.0, 0.5)),
        ("matern32:2", Matern(2.0, 1.5)),
        ("matern52:2", Matern(2.0, nu=2.5)),
        ("rational_quadratic:2", RationalQuadratic(2.0)),
        ("neural_tangent:3", NeuralTangent(3)),
        ("gaussian:5+linear", Gaussian(5.0) + LinearKernel()),
        ("gaussian:1e+5 + linear", Gaussian(1e5) + LinearKernel()),
        ("2*gaussian:5 + cauchy:3*linear", 2 * Gaussian(5.0) + Cauchy(3.0) * LinearKernel()),
        ("linear", LinearKernel()),
    ],
)
def test_words_mean_kernels(text: str, kernel: Kernel) -> None:
    assert parse_kernel(text) == kernel


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "cauchy", "matern12", "matern52", "rational_quadratic"])
def test_the_median_length_scale_is_the_median_distance(name: str) -> None:
    kernel = parse_kernel(f"{name}:median")
    with pytest.raises(SpecError, match=f"the {name} kernel's length scale is 'median': call kernel.resolve"):
        kernel.block(ROWS, ROWS)
    resolved = kernel.resolve(ROWS)
    assert resolved.spec()["length_scale"] == pytest.approx(np.median(pdist(ROWS)), rel=1e-12)
    assert resolved.resolve(3 * ROWS) == resolved
    assert resolved.block(ROWS, ROWS).shape == (50, 50)


def test_a_median_of_zero_is_no_length_scale() -> None:
    for rows in (np.ones((9, 2)), ROWS[:1]):
        with pytest.raises(DataError, match="the median distance between rows is 0"):
            Gaussian("median").resolve(rows)


def test_rows_that_are_mostly_equal_have_the_median_of_the_other_distances() -> None:
    rows = np.vstack([np.zeros((90, 2)), [[3.0, 4.0]], [[6.0, 8.0]]])
    assert Gaussian("median").resolve(rows + 1e3).length_scale == pytest.approx(5, rel=1e-6)


def test_polynomial_gamma_comes_from_the_number_of_features() -> None:
    with pytest.raises(SpecError, match="gamma depends on data"):
        Polynomial().block(ROWS, ROWS)
    assert Polynomial().resolve(ROWS) == Polynomial(gamma=0.25)
    assert Polynomial(gamma=2.0).resolve(ROWS) == Polynomial(gamma=2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "gausian:5",
            r"kernel 'gausian' is unknown; did you mean 'gaussian'\? Known kernels: auto, gaussian, laplacian,",
        ),
        ("autos", r"kernel 'autos' is unknown; did you mean 'auto'\?"),
        ("gaussian+auto", r"kernel 'auto' is unknown\. Known kernels: gaussian,"),
        ("", r"kernel '' is unknown\. Known kernels"),
        ("gaussian:five", "'five' is not a number; write for example gaussian:5"),
        ("gaussian:", "'' is not a number"),
        ("linear:2", "linear takes no parameter; write 'linear'"),
        ("inverse_polynomial:1", "takes no parameter"),
        ("gaussian:0", r"got length_scale=0\.0 for the gaussian kernel; give a positive finite number"),
        ("laplacian:-3", "give a positive finite number"),
        ("cauchy:nan", "give a positive finite number"),
        ("cauchy:inf", "give a positive finite number"),
        ("polynomial:2.5", r"got degree=2\.5 for the polynomial kernel; give a whole number"),
        ("polynomial:0", "give a whole number"),
        ("polynomial:inf", "polynomial kernel"),
        ("polynomial:nan", "polynomial kernel"),
        ("polynomial:median", "polynomial kernel"),
        ("arc_cosine:3", r"got degree=3\.0 for the arc_cosine kernel; give 0, 1 or 2"),
        ("neural_tangent:0", r"got depth=0\.0 for the neural_tangent kernel; give a whole number from 1 to 16"),
        ("neural_tangent:1.5", "give a whole number from 1 to 16"),
        ("matern32:-1", "got length_scale=-1.0 for the matern32 kernel"),
        ("gaussian:5+", r"kernel '' is unknown"),
        ("2*3", r"got kernel '2\*3', which has no name"),
        ("-2*gaussian", r"got factor=-2\.0 for the scaled kernel; give a positive finite number"),
        ("gaussian:5*gausian", "did you mean 'gaussian'"),
    ],
)
def test_bad_words_are_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_kernel(text)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"name": "sigmoid"}, "kernel 'sigmoid' is unknown"),
        ({}, "kernel '' is unknown"),
        (
            {"name": "gaussian", "gamma": 1.0},
            r"got gamma=1\.0 for the gaussian kernel, which takes \['factor', 'length_scale', 'metric'\]",
        ),
        ({"name": "linear", "gamma": 1.0}, "which takes nothing"),
        ({"name": "gaussian", "length_scale": [1.0, -1.0]}, "got length_scale=.* for the gaussian kernel"),
        ({"name": "gaussian", "length_scale": []}, "got length_scale=.* for the gaussian kernel"),
        (
            {"name": "gaussian", "length_scale": [[1.0, 2.0]]},
            "one positive number per feature, or an invertible matrix",
        ),
        ({"name": "gaussian", "length_scale": [[1.0, 1.0], [1.0, 1.0]]}, "or an invertible matrix"),
        ({"name": "gaussian", "metric": [[1.0, 0.5], [0.0, 1.0]]}, "metric of the gaussian kernel is not symmetric"),
        ({"name": "gaussian", "metric": [[1.0, 2.0], [2.0, 1.0]]}, "positive semi-definite matrix other than 0"),
        ({"name": "gaussian", "metric": [[0.0]]}, "positive semi-definite matrix other than 0"),
        ({"name": "gaussian", "metric": [1.0]}, r"got a metric of shape \(1,\)"),
        (
            {"name": "gaussian", "metric": [[1.0]], "length_scale": [2.0]},
            "give a metric or a factor with a number or 'median'",
        ),
        (
            {"name": "matern32", "nu": 2.5},
            r"got nu=2\.5 for the matern32 kernel, which takes \['factor', 'length_scale'",
        ),
        ({"name": "rational_quadratic", "alpha": 0.0}, "got alpha=0.0 for the rational_quadratic kernel"),
        ({"name": "sum"}, r"the sum of kernels takes \['kernels'\]"),
        ({"name": "sum", "kernels": []}, "got a sum of no kernels"),
        ({"name": "product", "kernels": "linear"}, "the product of kernels takes"),
        ({"name": "scaled", "kernel": {"name": "linear"}}, r"the scaled of kernels takes \['factor', 'kernel'\]"),
        ({"name": "scaled", "kernel": {"name": "linear"}, "factor": 0}, "give a positive finite number"),
        ({"name": "sum", "kernels": [{"name": "gausian"}]}, "did you mean 'gaussian'"),
        ({"name": "gaussian", "length_scale": True}, "got length_scale=True for the gaussian kernel"),
        ({"name": "gaussian", "length_scale": "mean"}, "expected a number or 'median'"),
        ({"name": "polynomial", "coef0": -1.0}, "give a number >= 0"),
        ({"name": "polynomial", "gamma": -1.0}, "got gamma=-1.0 for the polynomial kernel"),
        ({"name": "polynomial", "degree": "three"}, "polynomial kernel"),
    ],
)
def test_bad_specs_are_refused_with_a_sentence(spec: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        from_spec(spec)


@pytest.mark.parametrize("value", [None, True, [1.0, 0.0], [[1.0, 2.0]], ["a"], {}, "wide", -1.0, np.nan])
def test_constructors_refuse_what_is_no_length_scale(value: object) -> None:
    with pytest.raises(SpecError, match=r"length_scale=.* for the laplacian kernel"):
        Laplacian(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("nu", [0.0, 1.0, "rough", None])
def test_matern_takes_three_orders(nu: object) -> None:
    with pytest.raises(SpecError, match=r"got nu=.* for the matern kernel; give 0\.5, 1\.5 or 2\.5"):
        Matern(1.0, nu)  # type: ignore[arg-type]


def test_a_matern_kernel_is_named_by_its_order() -> None:
    assert Matern(2.0, 2.5).spec() == {"name": "matern52", "length_scale": 2.0}
    assert len({Matern(2.0, nu) for nu in (0.5, 1.5, 2.5)}) == 3
