"""Conversion of the estimators' parameters to settings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import numpy as np
from dask.base import is_dask_collection
from distributed import default_client
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state

from daskkern.backend.current import current, occupies_worker
from daskkern.backend.nested_parameters import NestedParameters, split_names
from daskkern.basis import BasisSpec, Landmarks
from daskkern.cluster.connect.clients import client_of
from daskkern.data.schema.encoding import UnknownChoice
from daskkern.errors import SpecError
from daskkern.kernels import CallableKernel, Kernel, parse_kernel
from daskkern.losses import Loss, parse_loss
from daskkern.solvers import parse_solver
from daskkern.training.setup.defaults import usual_loss

_MOST_PARTS = 3  # of validation rows: X, y, and weights

_CLONED = ("_metadata_request", "_sklearn_output_config")
"""Attributes that a clone of an estimator has in addition to its parameters, as in scikit-learn."""

Given = ParamSpec("Given")
Result = TypeVar("Result")
Estimator = TypeVar("Estimator", bound=BaseEstimator)


def as_kernel(kernel: Any) -> Kernel:
    """Return a kernel from a kernel, its specification as a string, or a function of two tables of rows."""
    if isinstance(kernel, str):
        return parse_kernel(kernel)
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel, getattr(kernel, "__name__", "callable"))
    if not isinstance(kernel, Kernel):
        raise SpecError(
            f"got kernel={kernel!r}; give a kernel such as Gaussian(5.0), a string such as 'gaussian:5', or a function "
            "of two tables of rows"
        )
    return kernel


def as_basis(basis: Any, columns: type[BasisSpec] = Landmarks) -> Any:
    """Return a basis for a number of columns, that many landmarks or other `columns`; anything else as it is."""
    if isinstance(basis, int | np.integer) and not isinstance(basis, bool):
        return columns(int(basis))  # type: ignore[call-arg]
    return basis


def loss_of(estimator: BaseEstimator) -> Loss:
    """Return the loss of an estimator; "auto" is the default one of its solver. SpecError for names of none."""
    if not isinstance(estimator.loss, str) or estimator.loss != "auto":
        return parse_loss(estimator.loss)
    solver = parse_solver(estimator.solver, getattr(as_basis(estimator.basis), "name", ""))
    return parse_loss(usual_loss(solver, classes=isinstance(estimator, ClassifierMixin)))


class NestedEstimator(BaseEstimator):
    """An estimator whose kernel, basis, loss and solver have parameters that searches set: ``kernel__length_scale``."""

    _columns_of_numbers: ClassVar[type[BasisSpec]] = Landmarks

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``basis__n`` and such replace the basis, and leave the old one as it was.

        A kernel that is given as a string has the parameters of the kernel that it means, ``loss="auto"`` those of the
        default loss, and ``basis="auto"`` those of ``Landmarks``.
        """
        plain, nested = split_names(params)
        super().set_params(**plain)
        for name, inner in nested.items():
            value = self._valued(name)
            if isinstance(value, NestedParameters):
                setattr(self, name, value.set_params(**inner))
            else:
                super().set_params(**{f"{name}__{each}": found for each, found in inner.items()})
        return self

    def _valued(self, name: str) -> Any:
        """Return the object that a parameter, which may be a string or a number, means."""
        value = self.get_params(deep=False).get(name)
        if name == "basis":
            return self._columns_of_numbers() if value in (None, "auto") else as_basis(value, self._columns_of_numbers)
        if isinstance(value, str) and name == "kernel":
            return parse_kernel(value)
        if isinstance(value, str) and name == "loss":
            return loss_of(self)
        if isinstance(value, str) and name == "solver":
            return parse_solver(value)
        return value


def cloned(estimator: Estimator, shared: tuple[str, ...]) -> Estimator:
    """Return an unfitted copy that has the parameters called `shared` in common with the estimator.

    Requests of metadata and the container of outputs are kept, as by :func:`sklearn.base.clone`.
    """
    parameters = estimator.get_params(deep=False)
    common = {name: parameters.pop(name) for name in shared}
    copy = type(estimator)(**{name: clone(value, safe=False) for name, value in parameters.items()})
    copy.set_params(**common)
    for name in _CLONED:
        if hasattr(estimator, name):
            setattr(copy, name, deepcopy(getattr(estimator, name)))
    return copy


def as_seed(random_state: Any) -> int:
    """Return an integer seed for scikit-learn's `random_state`. SpecError for anything else."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state >= 0:
            return int(random_state)
    elif random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise SpecError(f"got random_state={random_state!r:.60}; expected a whole number from 0, a RandomState or None")


def check_flags(estimator: BaseEstimator, *names: str) -> None:
    """Raise SpecError for a parameter of these that the estimator has and that is neither True nor False (1 or 0)."""
    for name in names:
        value = getattr(estimator, name, False)
        if not isinstance(value, bool | int | np.bool_ | np.integer) or value not in (0, 1):
            raise SpecError(f"got {name}={value!r:.60}; expected True or False")


def unknown_choice(estimator: BaseEstimator) -> UnknownChoice:
    """Return what becomes of categories that the training rows lack: what an estimator's `handle_unknown` means."""
    choices: dict[str, UnknownChoice] = {"error": "refuse", "ignore": "ignore"}
    given = getattr(estimator, "handle_unknown", "error")
    if not isinstance(given, str) or given not in choices:
        raise SpecError(f"got handle_unknown={given!r}; expected 'error' or 'ignore'")
    return choices[given]


def computed_by_client(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a method of an estimator that computes the Dask collections it is given on the estimator's client.

    They may be persisted there, and unknown to the active client of this process.
    """

    @wraps(method)
    def computing(*args: Given.args, **options: Given.kwargs) -> Result:
        with _client_for(*args, **options):
            return method(*args, **options)

    return computing


def fits(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a method that fits an estimator as :func:`computed_by_client` does, or leaves it as it was.

    An older model keeps its columns and classes where a fit to other rows fails or is interrupted.
    """

    @wraps(method)
    def fitting(*args: Given.args, **options: Given.kwargs) -> Result:
        with _undone_on_failure(args[0]), _client_for(*args, **options):
            return method(*args, **options)

    return fitting


@contextmanager
def _undone_on_failure(estimator: Any) -> Iterator[None]:
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@contextmanager
def _client_for(estimator: Any, *given: Any, **options: Any) -> Iterator[None]:
    """Make the client of an estimator the current one where a collection of Dask is among what it is given."""
    client = getattr(estimator, "client", None)
    if client is None or not any(map(_has_collection, (*given, *options.values()))):
        yield
        return
    with client_of(client) as connected:
        assert connected is not None
        with current(connected):
            yield


def _has_collection(given: Any) -> bool:
    parts = given if isinstance(given, tuple | list) and len(given) <= _MOST_PARTS else (given,)
    return any(map(is_dask_collection, parts))


def active_client(client: Any) -> Any:
    """Return `client`, or if it is None the active client of this process, if there is one.

    A task has none unless it has seceded, as with ``worker_client()``: searches fit in tasks that occupy all workers.
    """
    if client is not None:
        return client
    if occupies_worker():
        return None
    try:
        return default_client()
    except ValueError:
        return None


def can_continue(estimator: Any) -> bool:
    """Return True if a fit can continue on other rows. Raises AttributeError with the reason if it cannot."""
    try:
        reason = estimator._why_no_other_rows()
    except SpecError:
        return True  # partial_fit itself reports the invalid parameter
    if reason:
        raise AttributeError(f"partial_fit is not available: {reason}")
    return True
