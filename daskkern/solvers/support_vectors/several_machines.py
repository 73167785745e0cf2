"""The solution of several support vector machines on the same rows, one after the other, a working set at a time."""

from collections.abc import Mapping, Sequence

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.errors import DataError
from daskkern.solvers.support_vectors.decomposition import Between
from daskkern.solvers.support_vectors.kernel_rows import KernelRows
from daskkern.solvers.support_vectors.machines import DualMachine, Limits, OneMachine

_ENDED = ("loss", "gap", "violation")


class MachinesInTurn:
    """The machines so far: those that are solved, the one that is being solved, and constants for the others."""

    def __init__(self, machines: Sequence[DualMachine], rows: KernelRows, limits: Limits) -> None:
        self._machines, self._rows, self._limits = machines, rows, limits
        self._solved: list[OneMachine] = []
        self._constants: dict[int, OneMachine] = {}
        self._latest: OneMachine | None
        self._begin()

    @property
    def n_rounds(self) -> int:
        """Working sets so far, of all machines."""
        return sum(each.n_rounds for each in self._solved) + self._solution.n_rounds

    def advance(self) -> bool:
        """Solve one more working set. Return False where all machines were solved. Raises DataError for none."""
        current = self._machines[len(self._solved)]
        if self._solution.advance():
            if self._solution.is_whole:
                self._latest = current.judged(self._solution.found())
            return True
        found = self._solution.found()
        current.check(found)
        self._solved.append(current.judged(found))
        if len(self._solved) == len(self._machines):
            return False
        self._begin()
        return True

    def known(self) -> list[OneMachine]:
        """Return the machines as they were last known, of which the one that is being solved may have gone on."""
        done, all_of_them = len(self._solved), len(self._machines)
        latest = [] if self._latest is None or done == all_of_them else [self._latest]
        return [*self._solved, *latest, *(self._constant(place) for place in range(done + len(latest), all_of_them))]

    def settled(self) -> list[OneMachine]:
        """Return the machines as they are, completing the scores of the one that is being solved.

        Before its first working set it is a constant.
        """
        if len(self._solved) < len(self._machines) and self._solution.n_rounds:
            self._latest = self._machines[len(self._solved)].judged(self._solution.found())
        return self.known()

    def _begin(self, between: Between | None = None) -> None:
        self._solution = self._machines[len(self._solved)].begun(self._rows, self._limits, between)
        self._latest = None

    def _constant(self, place: int) -> OneMachine:
        if place not in self._constants:
            self._constants[place] = self._machines[place].constant()
        return self._constants[place]

    def arrays(self) -> dict[str, HostArray]:
        """Return copies of what :meth:`restore` needs."""
        between = self._solution.between()
        solved = {
            "solved_coef": np.array([each.coef for each in self._solved]).reshape(-1, self._rows.n_rows),
            "solved_offset": np.array([each.offset for each in self._solved]),
            "solved_rounds": np.array([each.n_rounds for each in self._solved], np.int64),
            **{f"solved_{name}": np.array([getattr(each, name) for each in self._solved]) for name in _ENDED},
        }
        scores = {} if between.f is None else {"f": between.f}
        counts = np.array([between.n_rounds], np.int64)
        moved = np.array([between.moved])
        return {**solved, **scores, "b": between.b, "last": between.last, "n_rounds": counts, "moved": moved}

    def restore(self, arrays: Mapping[str, HostArray]) -> None:
        """Go on from arrays of :meth:`arrays`. Raises DataError where they are of other rows or machines."""
        coef = arrays["solved_coef"]
        if coef.shape[0] >= len(self._machines) or coef.shape[1] != self._rows.n_rows:
            raise DataError(_OTHER)
        rest = (arrays["solved_offset"], *(arrays[f"solved_{name}"] for name in _ENDED), arrays["solved_rounds"])
        self._solved = [
            OneMachine(each, float(offset), float(loss), float(gap), float(violation), int(rounds), 0)
            for each, offset, loss, gap, violation, rounds in zip(coef, *rest, strict=True)
        ]
        b, f, last = arrays["b"], arrays.get("f"), arrays["last"]
        problem = self._machines[coef.shape[0]].problem
        fits = b.shape == problem.start.shape and (f is None or f.shape == (self._rows.n_rows,))
        if not fits or not ((last >= 0) & (last < b.size)).all():
            raise DataError(_OTHER)
        self._begin(Between(b, f, last, float(arrays["moved"][0]), int(arrays["n_rounds"][0])))


_OTHER = "a saved state does not fit this support vector machine: its rows or outputs are others"


def totals(machines: Sequence[OneMachine]) -> tuple[float, float, float]:
    """Return the loss, the gap, and the largest violation of all machines."""
    return (
        sum(each.loss for each in machines),
        sum(each.gap for each in machines),
        max(each.violation for each in machines),
    )


def stacked(machines: Sequence[OneMachine]) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients (n, c) and the offsets (c,) of all machines."""
    return np.stack([each.coef for each in machines], axis=1), np.array([each.offset for each in machines])
