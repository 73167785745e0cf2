"""Model search within a time budget: candidates, trials on sampled rows, and the table of their results."""

from daskkern.model_selection.budget import Budget
from daskkern.model_selection.held_out import SCORINGS
from daskkern.model_selection.running import ClusterRunner, LocalRunner
from daskkern.model_selection.search import SearchResult, search
from daskkern.model_selection.searched_fit import search_on, trials_of, with_trials
from daskkern.model_selection.trials import TrialRow, TrialTable

__all__ = [
    "SCORINGS",
    "Budget",
    "ClusterRunner",
    "LocalRunner",
    "SearchResult",
    "TrialRow",
    "TrialTable",
    "search",
    "search_on",
    "trials_of",
    "with_trials",
]
