"""Validation of the settings that distribute work: batches, virtual ranks, and groups of ranks."""

from typing import Any

from daskkern.basis import BasisSpec
from daskkern.errors import SpecError
from daskkern.solvers import Solver
from daskkern.solvers.base import is_whole
from daskkern.solvers.sampling import SAMPLING_WAYS, draws_rows


def check_shards(shards: int | None, solver: Solver[Any], basis: BasisSpec, reading: str, keep_blocks: str) -> None:
    """Raise SpecError for a number of virtual ranks that is none, or that does not go with other settings."""
    if shards is None:
        return
    if not is_whole(shards, 1):
        raise SpecError(f"got virtual_shards={shards!r}; expected a whole number of at least 1, or None")
    if solver.is_serial:
        raise SpecError(
            f"got virtual_shards={shards} with solver {solver.name}, which runs on one rank and "
            "gives the same bits anyway; leave it out"
        )
    if reading == "once":
        raise SpecError(
            f"got reading='once' with virtual_shards={shards}, of which each reads all rows for itself; choose "
            "'each', or leave one of them out"
        )
    if basis.all_rows and keep_blocks not in ("auto", "never"):
        raise SpecError(
            f"got virtual_shards={shards} with all rows as centres and keep_blocks={keep_blocks!r}, "
            "whose rounding depends on the memory of the workers; choose 'never'"
        )


def check_sampling(sampling: str, basis: BasisSpec, keep_blocks: str) -> None:
    """Raise SpecError for a way of sampling that is none, or that does not go with other settings."""
    if sampling not in SAMPLING_WAYS:
        raise SpecError(f"got sampling={sampling!r}; expected one of {', '.join(SAMPLING_WAYS)}")
    if draws_rows(sampling) and basis.all_rows:
        raise SpecError(
            f"got sampling={sampling!r} with all rows as centres, whose coefficients are updated row by row; "
            "give landmarks or features as the basis, or another sampling"
        )
    if sampling == "fresh" and keep_blocks not in ("auto", "never"):
        raise SpecError(
            f"got keep_blocks={keep_blocks!r} with sampling='fresh', whose batches are others in every epoch; "
            "choose 'never'"
        )


def check_groups(groups: int | str, solver: Solver[Any], shards: int | None) -> None:
    """Raise SpecError for a number of groups that is none, or that does not go with the solver or virtual ranks."""
    if groups == "auto":
        return
    if not is_whole(groups, 1):
        raise SpecError(f"got groups={groups!r}; expected a whole number of at least 1, or 'auto'")
    if int(groups) > 1 and not solver.divides_batches:
        raise SpecError(
            f"got groups={groups} with solver {solver.name}, whose batches cannot be divided between groups "
            "of ranks; leave it out"
        )
    if int(groups) > 1 and shards is not None:
        raise SpecError(
            f"got groups={groups} with virtual_shards={shards}, which fix the order of all sums; leave one of them out"
        )
