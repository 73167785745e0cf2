"""``daskkern fit --auto``: the model search before a fit, and its table of trials."""

from dataclasses import replace

from distributed import Client

from daskkern.cli.console import listing, say
from daskkern.cli.options.fit_request import FitRequest
from daskkern.errors import SpecError
from daskkern.events import Listener
from daskkern.model_selection import Budget, TrialTable, search_on
from daskkern.training.run.job import FitJob

_CHOSEN = (
    *("system", "kernel", "loss", "basis", "landmarks", "features", "feature_kind", "selector", "solver"),
    *("alpha", "nearest", "leaf_rows", "trees", "batch_size", "sampling", "early_stopping", "monitor", "scale"),
    *("learn_features", "virtual_shards"),
)
"""Options whose values a search chooses, or which not every candidate can have."""


def without_limit(request: FitRequest, *, detach: bool) -> tuple[FitRequest, Budget]:
    """Return the request for a fit without the limit of time, and the budget of search and fit.

    Raises
    ------
    SpecError
        For options that a search chooses.
    """
    if detach:
        raise SpecError("got --auto with --detach, but a search runs with this command; leave one of them out")
    given = [name for name in request.values if name in _CHOSEN or name.startswith(("solver.", "learn_features."))]
    if given:
        raise SpecError(
            f"got --auto with {given[0]}, which the search chooses; leave one of them out, or fit without --auto"
        )
    seconds = request.values.get("max_seconds")
    others = {name: value for name, value in request.values.items() if name != "max_seconds"}
    return replace(request, values=others), Budget(None if seconds is None else _number(seconds))


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise SpecError(f"got max_seconds={value!r}; expected a positive number of seconds") from None


def searched(job: FitJob, budget: Budget, client: Client | None, listener: Listener) -> tuple[FitJob, TrialTable]:
    """Return the job with the settings that a search has found, and what it tried."""
    found = search_on(job.source, job.settings, client, budget=budget, scoring="auto", listener=listener)
    return replace(job, settings=found.settings), found.trials


def show_trials(trials: TrialTable) -> None:
    """Print what a search has tried, and what came of it."""
    listing(trials.columns, trials.cells())
    say(trials.note)
