"""EigenPro steps over landmarks on one GPU as CUDA graphs: one host call per step instead of forty.

What a step does is decided by the place of its batch in the window, so that each place has a graph. Batches of fewer
rows than the largest are filled up with rows of weight 0: those of an earlier batch, at first its own first row.

Within a window, the run's arrays are those that the next step overwrites; at its end they are its own. The first window
is not recorded: there it would take the time of three.
"""

import itertools
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import SerialCommunicator
from daskkern.backend.namespace import is_sparse
from daskkern.kernels.engines.cuda.recording import GraphRecorder
from daskkern.kernels.rows import unchecked_rows
from daskkern.linalg import even_slices
from daskkern.solvers.eigenpro.device_steps import StepNumbers, WindowIterate, step_on_device
from daskkern.solvers.eigenpro.state import EigenProRun, EigenProSetup
from daskkern.solvers.eigenpro.temporary_centres import UNIT, Buffer, Temporary
from daskkern.solvers.problem import AnyProblem, Batch

_ALONE = SerialCommunicator()
_LEAST_WINDOWS = 8  # of a run whose steps are recorded


@dataclass(frozen=True, eq=False)
class Places:
    """Where recorded steps read and write.

    Attributes
    ----------
    weight : (M, 1) array
        Of the batch, of at most M rows.
    a, working, pending, at_S : arrays
        The run; see :class:`daskkern.solvers.eigenpro.state.EigenProRun`.
    loss : array () float64
        Of the batch, before the step.
    """

    weight: Array
    a: Array
    working: Array
    pending: Array
    at_S: Array
    loss: Array

    @classmethod
    def of(cls, recorder: GraphRecorder, rows: int, problem: AnyProblem, state: EigenProRun) -> "Places":
        """Return places of the recorder for batches of up to `rows` rows, and such a run."""
        dtype, (p, c) = problem.dtype, state.working.shape
        return cls(
            recorder.place("weight", (rows, 1), dtype, read_only=True),
            recorder.place("a", (p, c), dtype),
            recorder.place("working", (p, c), dtype),
            recorder.place("pending", (p, c), dtype),
            recorder.place("at_S", state.at_S.shape, dtype),
            recorder.place("loss", (), np.float64),
        )

    @property
    def run(self) -> tuple[Array, ...]:
        """The arrays of the run."""
        return self.a, self.working, self.pending, self.at_S


class RecordedWindow:
    """The recorded steps of one rank.

    Parameters
    ----------
    recorder : GraphRecorder
    rows : int
        Most rows of a batch.
    """

    def __init__(self, recorder: GraphRecorder, rows: int) -> None:
        self._recorder, self._rows = recorder, rows
        self._refusal = ""
        self._calls = 0
        self._zero: Array = None
        self._places: Places | None = None
        self._room: Buffer | None = None
        self._temporary: dict[int, Temporary] = {0: Temporary()}
        self._given: tuple[Array, ...] = ()
        self._weighted = 0  # rows whose weights of 1 are in their place, where rows have none of their own
        self._filled_up: set[str] = set()  # names of places all of whose rows are those of some batch

    @property
    def refusal(self) -> str:
        """Why steps could not be recorded, for the user; "" where they could."""
        return self._refusal

    def step(
        self, problem: AnyProblem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float
    ) -> tuple[EigenProRun, Array] | None:
        """Return the run after a batch, projected where the window ends, and the loss () before it.

        None where the step cannot be recorded; the run is then as before.
        """
        at, recorder = state.in_window, self._recorder
        self._calls += 1
        pays = self._calls > setup.window and problem.n_steps >= _LEAST_WINDOWS * setup.window
        if not pays or not self._takes(setup, state, batch):
            return None
        if self._places is None:
            self._places = Places.of(recorder, self._rows, problem, state)
        places, ends = self._places, batch.last or at + 1 >= setup.window
        scale = state.scale * (1 - eta * problem.alpha)
        X = None if setup.window == 1 and batch.phi is not None else self._filled("X", batch.X)
        y, phi = self._filled("y", batch.y), self._filled("phi", batch.phi)
        self._fill(places, state, batch)
        numbers, scaled = self._numbers(StepNumbers.of(eta, problem.alpha, batch.size), scale, problem.dtype)
        work = partial(self._work, problem, setup, places, X, y, phi, at, ends, numbers, scaled)
        try:
            recorder.run((at, ends, batch.phi is not None), work)
        except (RuntimeError, NotImplementedError, MemoryError, OSError) as error:  # what CuPy and CUDA raise
            self._refusal = f"not recorded as CUDA graphs ({type(error).__name__}: {error})"
            return None
        loss, at_S, pending = recorder.copied(places.loss), state.at_S, places.pending
        if ends:
            a = working = recorder.copied(places.working)
            pending = self._zero = places.pending.copy() if self._zero is None else self._zero
            at_S = recorder.copied(places.at_S) if problem.alpha else at_S
            scale, in_window = 1.0, 0
        else:
            a, working, in_window = state.a, places.working, at + 1
            at_S = places.at_S if problem.alpha else at_S
        after = EigenProRun(
            a, scale, working, pending, at_S, self._temporary[in_window], in_window, state.step + 1, state.average,
            state.slow, state.projected,
        )  # fmt: skip
        self._given = _arrays(after)
        return after, loss

    def _takes(self, setup: EigenProSetup, state: EigenProRun, batch: Batch) -> bool:
        at = state.in_window
        known = state.temporary is self._temporary.get(at) or (not at and not state.temporary.units)
        alone = setup.window == 1 and batch.phi is not None
        has_rows = alone or (batch.X is not None and not is_sparse(batch.X))
        return not self._refusal and known and has_rows and batch.y.shape[0] <= self._rows

    def _fill(self, places: Places, state: EigenProRun, batch: Batch) -> None:
        """Put a batch where recorded work reads it, and the run unless it is there."""
        recorder, m = self._recorder, batch.y.shape[0]
        arrays = _arrays(state)
        if not self._given or any(a is not b for a, b in zip(arrays, self._given, strict=True)):
            for source, target in zip(arrays, places.run, strict=True):
                if source is not target:
                    recorder.copy(source, target)
        if batch.weight is not None:
            recorder.copy(batch.weight, places.weight[:m])
            places.weight[m:] = 0
        elif self._weighted != m:
            places.weight[:m], places.weight[m:] = 1, 0
        self._weighted = m if batch.weight is None else 0

    def _filled(self, name: str, values: Array | None) -> Array | None:
        """Put what is of the rows of a batch where recorded work reads it, and return this place; None for None."""
        if values is None:
            return None
        place = self._recorder.place(name, (self._rows, *values.shape[1:]), values.dtype, read_only=True)
        m = len(values)
        self._recorder.copy(values, place[:m])
        if m < self._rows and name not in self._filled_up:
            place[m:] = values[:1]
        self._filled_up.add(name)
        return place

    def _numbers(self, numbers: StepNumbers, scale: float, dtype: str) -> tuple[StepNumbers, Array]:
        """Put the numbers of a step where recorded work reads them, and return these places."""
        given = {"rate": numbers.rate, "shrink": numbers.shrink, "pull": numbers.pull, "scale": scale}
        rate, shrink, pull, scaled = (self._recorder.number(name, float(x), dtype) for name, x in given.items())
        return StepNumbers(rate, shrink, pull), scaled

    def _work(
        self,
        problem: AnyProblem,
        setup: EigenProSetup,
        places: Places,
        X: Array | None,
        y: Array,
        phi: Array | None,
        at: int,
        ends: bool,
        numbers: StepNumbers,
        scale: Array,
    ) -> None:
        """Take a step from the arrays at the places, and write its results there."""
        nobody = np.zeros(0, np.int64)  # the numbers of rows have no part in a step
        batch = Batch(X, y, places.weight, nobody, phi, ends)
        before, temporary = WindowIterate(places.working, places.pending, places.at_S), self._temporary[at]
        after, g, loss = step_on_device(problem, setup, before, temporary, batch, numbers, _ALONE)
        places.loss[...] = loss
        if problem.alpha:
            places.at_S[...] = after.at_S
            if temporary.buffer is not None:
                temporary.buffer.coefficients[: temporary.buffer.points.size] *= numbers.shrink
        if ends:
            assert setup.projector is not None
            places.working[...] = places.a * scale - setup.projector.solve(after.pending, _ALONE)
            places.a[...] = places.working
            places.pending.fill(0)
        else:
            places.working[...] = after.working
            places.pending[...] = after.pending
            self._add(problem, setup, at, X, -g)

    def _add(self, problem: AnyProblem, setup: EigenProSetup, at: int, X: Array | None, coefficients: Array) -> None:
        """Add the rows of a batch to the temporary centres that later places of the window have."""
        assert X is not None
        like, recorder = problem.part.points, self._recorder
        units = tuple(even_slices(self._rows, UNIT))
        with unchecked_rows():
            points = problem.part.kernel.points(X, like.placement, units, precision=like.precision)
        if self._room is None:
            room = (setup.window - 1) * self._rows
            made = Buffer.of(points, coefficients, room)
            self._room = replace(made, coefficients=recorder.place("coefficients", *_form(made.coefficients)))
        self._room.put(at * self._rows, points, coefficients)
        if at + 1 not in self._temporary:
            starts = range(0, (at + 1) * self._rows, self._rows)
            blocks = tuple(slice(a + unit.start, a + unit.stop) for a, unit in itertools.product(starts, units))
            buffer = self._room.first((at + 1) * self._rows, blocks)
            self._temporary[at + 1] = Temporary(units=len(blocks), buffer=buffer)


def _arrays(state: EigenProRun) -> tuple[Array, ...]:
    return state.a, state.working, state.pending, state.at_S


def _form(array: Array) -> tuple[tuple[int, ...], np.dtype]:
    return array.shape, array.dtype
