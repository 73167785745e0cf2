"""Running the trials of a search within its budget, and recording their results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from daskkern.errors import DaskkernError
from daskkern.events import Listener, StageFinished
from daskkern.model_selection.budget import Budget
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.running import DrawnSample, TrialRunner
from daskkern.model_selection.samples import SearchSample
from daskkern.model_selection.trials import TrialRow


class NamedCandidate(Protocol):
    """Whatever has a name for the table."""

    @property
    def name(self) -> str: ...


class TrialOutcome(Protocol):
    """A result with losses of held-out rows and the seconds spent on them."""

    @property
    def held(self) -> HeldOut: ...
    @property
    def seconds(self) -> float: ...


_Item = TypeVar("_Item", bound=NamedCandidate)
_Result = TypeVar("_Result", bound=TrialOutcome)


@dataclass(eq=False)
class TrialLog:
    """The trials of a search so far.

    Attributes
    ----------
    budget : Budget
    runner : TrialRunner
    listener : callable
        Hears of every trial as a stage of the fit.
    rows : list of TrialRow
    pace : dict of str to float
        For each method, the most seconds on the budget's clock between two outcomes of its last trials.
    """

    budget: Budget
    runner: TrialRunner
    listener: Listener
    rows: list[TrialRow] = field(default_factory=list)
    pace: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        method: str,
        trial: Callable[[_Item, SearchSample, Any], _Result],
        candidates: Sequence[_Item],
        drawn: DrawnSample,
        folds: Any,
        n_folds: int,
        *,
        growth: float = 1.0,
        reserved: float = 0.0,
        together: bool = False,
        verdict: str = "",
    ) -> list[tuple[_Item, _Result]]:
        """Return the candidates whose trials ended well with their outcomes, in the order of the candidates.

        Trials that would probably take longer than what is left are not begun, nor those that would take the `reserved`
        seconds of later ones. Before the first of them has ended, one is expected to take `growth` times as long as the
        last ones of its method.
        """
        if not candidates:
            return []
        slowest, last = growth * self.pace.get(method, 0.0), self.budget.spent
        if not self.budget.allows(slowest + reserved) and self.rows:
            return []

        def allowed() -> bool:
            return self.budget.allows(slowest + reserved)

        found: dict[int, _Result] = {}
        rows: dict[int, TrialRow] = {}
        for number, outcome in self.runner.run(trial, candidates, drawn, folds, allowed, together=together):
            now = self.budget.spent
            slowest, last = max(slowest if rows else 0.0, now - last), now
            row = TrialRow(candidates[number].name, method, drawn.sample.n_rows, n_folds, verdict=verdict)
            if isinstance(outcome, DaskkernError):
                row = replace(row, verdict=f"failed: {outcome}")
            else:
                found[number] = outcome
                row = replace(row, loss=outcome.held.mean, error=outcome.held.error, seconds=outcome.seconds)
            rows[number] = row
            self._tell(row)
        self.pace[method] = slowest
        self.rows += [rows[number] for number in sorted(rows)]
        return [(candidates[number], found[number]) for number in sorted(found)]

    def _tell(self, row: TrialRow) -> None:
        failed = row.loss != row.loss
        measured = row.verdict if failed else f"loss {row.loss:.4g}, error {row.error:.2%}"
        left = f"{max(0.0, self.budget.left()):.0f} s left"
        self.listener(StageFinished("trial", 0.0 if failed else row.seconds, f"{row.candidate}: {measured}; {left}"))
