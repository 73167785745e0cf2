"""The search for a model: successive halving of kernels on sampled rows, then trials of whole fits.

Kernels with their scalings, length scales and metrics are compared by cross-validated ridge regression, which takes
milliseconds to seconds, and where there are several classes by a softmax, on nested samples: those of the least loss go
on to more rows (Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization",
AISTATS 2016). Fits with the best kernels and several losses are then compared with the fit that would have run without
a search, on the same held-out rows; another one is taken where it is better beyond chance. Nothing is begun that does
not fit into the time that is left.
"""

from dataclasses import dataclass, replace

from daskkern.errors import DataError
from daskkern.events import Listener, StageFinished, silent
from daskkern.model_selection.budget import Budget
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate, ScaledKernel
from daskkern.model_selection.dense_samples import DenseSample, dense_sample
from daskkern.model_selection.fit_trials import FitOutcome, seconds_of_entry, try_fit
from daskkern.model_selection.fits import DEFAULT, fits_with, other_losses
from daskkern.model_selection.held_out import check_scoring
from daskkern.model_selection.lighter_penalties import lighter_fits
from daskkern.model_selection.local_stage import LEAF_ROWS, compare_local, confirming_rows, is_confirmed, unwarped
from daskkern.model_selection.local_stage import LEAST_ROWS as LOCAL_FROM
from daskkern.model_selection.ridge_trials import RidgeOutcome, learned_kernel
from daskkern.model_selection.running import DrawnSample, LocalRunner, TrialRunner
from daskkern.model_selection.samples import SearchSample
from daskkern.model_selection.screening import (
    FIRST,
    HELD_OUT,
    Ranked,
    finalists,
    n_folds_of,
    n_repeats_of,
    screened,
    screened_again,
)
from daskkern.model_selection.softmax_stage import SoftmaxKernel, softmax_kernel
from daskkern.model_selection.trial_log import TrialLog
from daskkern.model_selection.trials import TrialTable
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.defaults import MOST_CENTRES

LEAST_ROWS = 50
"""Rows from which models are compared."""
_FITTED, _MOST_FITTED = 6000, 12_000  # sampled rows that fits are compared on; more where there is plenty of time
_PLENTY = 4.0  # times what the fits are expected to take, which is known for fewer rows only
_SPREAD = 6000  # random rows that the comparison with leaves fits models of the whole space to
_MOST_FITS, _LOCAL_FITS = 4, 3.0
_MOST_FOLDS = 3  # of fits to more rows than those of the first sample
_PASSES = 5.0  # over kernel values that a fit computes once and keeps, where they fit into memory
_INSTANT = 1e-9


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search has found.

    Attributes
    ----------
    name : str
    settings : FitSettings
        Of the fit to all rows.
    trials : TrialTable
    """

    name: str
    settings: FitSettings
    trials: TrialTable


def search(
    source: RowSource,
    settings: FitSettings,
    *,
    budget: Budget,
    scoring: str = "auto",
    runner: TrialRunner | None = None,
    listener: Listener = silent,
) -> SearchResult:
    """Return the settings of the fit that predicts held-out rows of `source` best.

    Parameters
    ----------
    source : RowSource
    settings : FitSettings
        Of the fit without a search: what every candidate has in common with it, and what another one must surpass.
    budget : Budget
        With time enough, the result depends on rows, settings and seed only.
    scoring : str
        One of :data:`daskkern.model_selection.held_out.SCORINGS`.
    runner : TrialRunner or None
        Where trials run; None for this process.
    listener : callable
        Hears of every trial as a stage.

    Raises
    ------
    DaskkernError
        For rows and settings that a fit would refuse.
    """
    if source.info.task is None:
        raise DataError("the rows have no targets, so nothing can be fitted; ingest them with --target, or pass y")
    check_scoring(scoring, source.info.task)
    log = TrialLog(budget, runner or LocalRunner(), listener)
    return _Search(source, settings, scoring, log).found()


@dataclass(frozen=True, eq=False)
class _Search:
    """What all stages of a search share."""

    source: RowSource
    settings: FitSettings
    scoring: str
    log: TrialLog
    entry_seconds: float = 0.0
    """Of a kernel value, measured."""
    setup_seconds: float = 0.0
    """Of a fit to few rows, measured; 0 before that."""

    @property
    def default(self) -> FitCandidate:
        return FitCandidate(DEFAULT, self.settings, self.settings)

    def found(self) -> SearchResult:
        n = self.source.info.n_rows
        if n < LEAST_ROWS:
            return self._defaults(f"{n} rows are too few to compare models")
        drawn = self._drawn(FIRST)
        timed = replace(self, entry_seconds=seconds_of_entry(drawn.sample) if n > FIRST else 0.0)
        return timed._searched(drawn)

    def _searched(self, drawn: DrawnSample) -> SearchResult:
        n, budget = self.source.info.n_rows, self.log.budget
        if not self._measured(drawn):
            return self._defaults("the default fit failed on sampled rows")
        setup = self.log.pace["fit"]
        if not budget.allows(0.0):
            return self._defaults("the time is too short for a search")
        reserved = _MOST_FITS * self._fit_seconds(min(n, _SPREAD))
        first = screened(self.log, drawn)
        soft = softmax_kernel(self.log, first, drawn, reserved)
        ranked, drawn = screened_again(self.log, first, drawn, n, self._drawn, reserved)
        if not ranked:
            return self._defaults("the time was too short to compare kernels")
        return replace(self, setup_seconds=setup)._compared(ranked, drawn, soft)

    def _drawn(self, m: int) -> DrawnSample:
        """Return a sample of m rows, with the scalings that candidates may have."""
        known = self.source.info.scaling.kind != "none" or self.settings.scale is None
        dense = self.source.info.n_stored is None
        scales: tuple[str | None, ...] = (
            (None,) if known else ("arcsinh", "affine", *(("ranks", "common") if dense else ()))
        )
        return self.log.runner.draw(self.source, self.settings, m, scales, self.scoring)

    def _measured(self, drawn: DrawnSample) -> bool:
        """Predict the time of the final fit from a fit of the defaults to sampled rows. Return whether that ended."""
        folds = drawn.sample.folds(1, HELD_OUT)
        done = self.log.run("fit", try_fit, [self.default], drawn, folds, 1, verdict="to measure the time")
        if done:  # the first fit of a process imports and compiles
            again = self.log.run("fit", try_fit, [self.default], drawn, folds, 1, verdict="to measure the time again")
            done = again or done
        self.log.budget.fit_seconds = self._fit_seconds(self.source.info.n_rows) / self.log.runner.n_workers
        return bool(done)

    def _fit_seconds(self, n: int) -> float:
        """Return what a fit to n rows probably takes on one worker.

        That is the time of the first fit, which is that of the set-up, and the time of the kernel values.
        """
        setup = self.setup_seconds or self.log.pace["fit"]
        if not self.source.info.n_rows > FIRST:
            return setup
        return setup + _PASSES * n * min(n, MOST_CENTRES) * self.entry_seconds

    @property
    def _local_seconds(self) -> float:
        """What the comparison with models in leaves probably takes: fits to random rows, and the leaves."""
        n = self.source.info.n_rows
        return _LOCAL_FITS * self._fit_seconds(min(n, _SPREAD)) if self._has_local else 0.0

    @property
    def _has_local(self) -> bool:
        """Whether models in leaves are compared: for many rows without codes, which no tree cuts."""
        return self.source.info.n_rows >= LOCAL_FROM and not self.source.info.categories

    def _compared(self, ranked: Ranked, drawn: DrawnSample, soft: SoftmaxKernel | None) -> SearchResult:
        """Return the best of the fits with the kernels that are left, and of the defaults."""
        n = self.source.info.n_rows
        m, n_folds, n_repeats = self._size(n, drawn.sample)
        larger = drawn if m == drawn.sample.n_rows else self._drawn(m)
        folds = [fold for repeat in range(n_repeats) for fold in larger.sample.folds(n_folds, HELD_OUT, repeat)]
        n_folds = len(folds)
        kernels = [(one, outcome, learned_kernel(one, drawn.sample, outcome)) for one, outcome in finalists(ranked)]
        exact, others = fits_with(kernels, self.settings, n, len(folds[0].fitted), self.scoring, drawn.sample.n_rows)
        growth = n_folds * self._fit_seconds(len(folds[0].fitted)) / max(self.log.pace["fit"], _INSTANT)
        joint = [] if soft is None else [soft.fit(self.settings, n, len(folds[0].fitted))]

        def run(fits: list[FitCandidate], growth: float = 1.0) -> list[tuple[FitCandidate, FitOutcome]]:
            return self.log.run(
                "fit", try_fit, fits, larger, folds, n_folds, growth=growth, reserved=self._local_seconds
            )

        done = run([self.default, *joint, *(exact or [fits[0] for fits in others])], growth)
        usual = next((outcome for one, outcome in done if one.name == DEFAULT), None)
        if usual is None or len(done) < 2:
            return self._defaults("the time was too short to compare fits")
        solved = any(outcome.held.replaces(usual.held, self.scoring) for _, outcome in done)
        if not exact:
            done += run(other_losses(done, others, self._rank))
        elif not solved or self.scoring == "absolute_error":
            done += run(others[0])
        whole = [pair for pair in done if pair[0].settings.chooses_alpha]
        if whole and not exact:  # whose penalties are those of cross-validation
            done += lighter_fits(*min(whole, key=lambda pair: self._rank(pair[1])), self._rank, run)
        chosen, reason = self._best(usual, [pair for pair in done if pair[0].name != DEFAULT])
        found = self._local(chosen, kernels, larger.sample, min(m, _SPREAD)) if self._has_local else None
        return self._result(chosen, reason) if found is None else self._result(*found)

    def _local(
        self,
        best: FitCandidate,
        kernels: list[tuple[KernelCandidate, RidgeOutcome, ScaledKernel]],
        sample: SearchSample,
        m: int,
    ) -> tuple[FitCandidate, str] | None:
        """Return the model in leaves that is better than the best one of the whole space, and why, or None."""
        if not self.log.budget.allows(self._local_seconds):
            return None
        known = [unwarped(one, found.kernel, sample) for one, _, found in kernels if not one.categories]
        if not known:
            return None
        one, kernel = known[0]
        arguments = (self.settings, sample, one.scale, kernel, LEAF_ROWS, m)

        def draw() -> tuple[DenseSample, DrawnSample]:
            dense = self.log.runner.apply(dense_sample, self.source, *arguments)
            return dense, DrawnSample(dense.sample, self.log.runner.share(dense.sample))

        growth = self._fit_seconds(m) / max(self.log.pace["fit"], _INSTANT)
        n = self.source.info.n_rows
        found = compare_local(self.log, best, known, self.settings, n, draw, growth=growth)
        return found if found is None or self._confirms(found[0], best) else None

    def _confirms(self, local: FitCandidate, best: FitCandidate) -> bool:
        """Return whether models fitted to many rows agree that `local` is better, as far as there is time."""
        n = self.source.info.n_rows
        m = confirming_rows(n, self.source.info.n_features)
        if not m or not self.log.budget.allows(2 * self._fit_seconds(m)):
            return True
        growth = self._fit_seconds(m) / max(self.log.pace["fit"], _INSTANT)
        return is_confirmed(self.log, local, best, self._drawn(m), n, growth=growth)

    def _size(self, n: int, sample: SearchSample) -> tuple[int, int, int]:
        """Return how many rows fits are compared on, in how many folds, drawn how often: fewer where time is short."""
        m = min(n, _FITTED)
        n_folds = n_folds_of(sample, m) if m <= FIRST else min(_MOST_FOLDS, n_folds_of(sample, m))
        if not self._allows_fits(1.0, n_folds, m):
            n_folds = 1
        while m < min(n, _MOST_FITTED) and self._allows_fits(_PLENTY, n_folds, min(n, 2 * m)):
            m = min(n, 2 * m)
        while m > FIRST and not self._allows_fits(1.0, n_folds, m):
            m, n_folds = max(FIRST, m // 2), 1
        n_repeats = n_repeats_of(m)
        return m, n_folds, n_repeats if self._allows_fits(1.0, n_repeats * n_folds, m) else 1

    def _allows_fits(self, times: float, n_folds: int, m: int) -> bool:
        """Return whether fits to m rows may take `times` as long as they are expected to."""
        return self.log.budget.allows(times * _MOST_FITS * n_folds * self._fit_seconds(m) + self._local_seconds)

    def _best(self, usual: FitOutcome, others: list[tuple[FitCandidate, FitOutcome]]) -> tuple[FitCandidate, str]:
        """Return the best fit that is better than the defaults, or these, and why."""
        better = [(one, outcome) for one, outcome in others if outcome.held.replaces(usual.held, self.scoring)]
        if not better:
            return self.default, "no other fit is better beyond chance"
        chosen, outcome = min(better, key=lambda pair: self._rank(pair[1]))
        return chosen, f"loss on held-out rows {usual.held.mean:.4g} -> {outcome.held.mean:.4g}"

    def _rank(self, outcome: FitOutcome) -> float:
        return outcome.held.rank_by(self.scoring)

    def _defaults(self, reason: str) -> SearchResult:
        return self._result(self.default, reason)

    def _result(self, chosen: FitCandidate, reason: str) -> SearchResult:
        log, note = self.log, f"{chosen.name} ({reason})"
        log.listener(StageFinished("search", log.budget.spent, note))
        rows = tuple(replace(row, verdict=_verdict(row.verdict, row.method, row.candidate, chosen)) for row in log.rows)
        settings = replace(chosen.settings, max_seconds=log.budget.for_fit())
        return SearchResult(chosen.name, settings, TrialTable(rows, f"chosen: {note}"))


def _verdict(verdict: str, method: str, name: str, chosen: FitCandidate) -> str:
    return "chosen" if not verdict and method == "fit" and name == chosen.name else verdict
