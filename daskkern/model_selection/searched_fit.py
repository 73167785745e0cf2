"""A search and its final fit, whose model records the trials."""

from dataclasses import replace

from distributed import Client

from daskkern.events import Listener
from daskkern.model_selection.budget import Budget
from daskkern.model_selection.running import ClusterRunner, LocalRunner
from daskkern.model_selection.search import SearchResult, search
from daskkern.model_selection.trials import TrialTable
from daskkern.models import KernelModel
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.fit import FitResult
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings

_RECORD = "search"


def search_on(
    source: RowSource,
    settings: FitSettings,
    client: Client | None,
    *,
    budget: Budget,
    scoring: str,
    listener: Listener,
) -> SearchResult:
    """Return the result of a search on the workers of a cluster, or with None in this process.

    Parameters and errors are those of :func:`daskkern.model_selection.search.search`.
    """
    job = FitJob(source, settings)
    job.check()
    source = job.without_copies().source  # which would be on both sides of every split
    runner = LocalRunner() if client is None else ClusterRunner(client)
    return search(source, settings, budget=budget, scoring=scoring, runner=runner, listener=listener)


def with_trials(result: FitResult, trials: TrialTable) -> FitResult:
    """Return the result with a model that records the trials of the search."""
    model = result.model
    return replace(result, model=replace(model, provenance={**model.provenance, _RECORD: trials.to_json()}))


def trials_of(model: KernelModel) -> TrialTable | None:
    """Return what the search tried that a model is the result of; None for a model without a search.

    Raises
    ------
    KeyError, TypeError, ValueError
        For a record that is damaged.
    """
    record = model.provenance.get(_RECORD)
    return None if record is None else TrialTable.from_json(record)
