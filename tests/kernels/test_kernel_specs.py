"""How kernels are named, written down, read back and refused."""

import pickle

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
    Linear,
    Polynomial,
    from_spec,
    parse_kernel,
)

ROWS = np.random.default_rng(0).standard_normal((50, 4))


@pytest.mark.parametrize("name", KERNELS)
def test_every_row_of_the_table_survives_its_spec(name: str) -> None:
    kernel = KERNELS[name].kernel()
    assert kernel.name == name
    assert from_spec(kernel.spec()) == kernel
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
        ("linear", Linear()),
    ],
)
def test_words_mean_kernels(text: str, kernel: Kernel) -> None:
    assert parse_kernel(text) == kernel


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "cauchy"])
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


def test_polynomial_gamma_comes_from_the_number_of_features() -> None:
    with pytest.raises(SpecError, match="gamma waits for data"):
        Polynomial().block(ROWS, ROWS)
    assert Polynomial().resolve(ROWS) == Polynomial(gamma=0.25)
    assert Polynomial(gamma=2.0).resolve(ROWS) == Polynomial(gamma=2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gausian:5", r"kernel 'gausian' is unknown; did you mean 'gaussian'\? Known kernels: gaussian, laplacian"),
        ("", r"kernel '' is unknown\. Known kernels"),
        ("gaussian:five", "'five' is no number; write for example gaussian:5"),
        ("gaussian:", "'' is no number"),
        ("linear:2", "linear takes no parameter; write 'linear'"),
        ("inverse_polynomial:1", "takes no parameter"),
        ("gaussian:0", r"length_scale=0\.0 was asked of the gaussian kernel; give a positive finite number"),
        ("laplacian:-3", "give a positive finite number"),
        ("cauchy:nan", "give a positive finite number"),
        ("cauchy:inf", "give a positive finite number"),
        ("polynomial:2.5", r"degree=2\.5 was asked of the polynomial kernel; give a whole number"),
        ("polynomial:0", "give a whole number"),
        ("polynomial:inf", "polynomial kernel"),
        ("polynomial:nan", "polynomial kernel"),
        ("polynomial:median", "polynomial kernel"),
        ("arc_cosine:2", r"only degree 1 is there"),
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
            r"gamma=1\.0 was asked of the gaussian kernel, which takes \['length_scale'\]",
        ),
        ({"name": "linear", "gamma": 1.0}, "which takes nothing"),
        ({"name": "gaussian", "length_scale": [1.0]}, "was asked of the gaussian kernel"),
        ({"name": "gaussian", "length_scale": True}, "was asked of the gaussian kernel"),
        ({"name": "gaussian", "length_scale": "mean"}, "give a number or 'median'"),
        ({"name": "polynomial", "coef0": -1.0}, "give a number >= 0"),
        ({"name": "polynomial", "gamma": -1.0}, "gamma=-1.0 was asked of the polynomial kernel"),
        ({"name": "polynomial", "degree": "three"}, "polynomial kernel"),
    ],
)
def test_bad_specs_are_refused_with_a_sentence(spec: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        from_spec(spec)


@pytest.mark.parametrize("value", [None, [1.0, 2.0], "wide", -1.0, float("nan")])
def test_constructors_refuse_what_is_no_length_scale(value: object) -> None:
    with pytest.raises(SpecError, match=r"length_scale=.* was asked of the laplacian kernel"):
        Laplacian(value)  # type: ignore[arg-type]
