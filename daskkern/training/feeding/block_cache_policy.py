"""The choice of where kernel blocks are cached between epochs: in memory, on the local disk, or nowhere."""

import os
import shutil
from dataclasses import replace

import numpy as np

from daskkern.data.remote.file_systems import is_in_memory
from daskkern.errors import MemoryBudgetError, SpecError
from daskkern.monitor.formatting import format_bytes
from daskkern.solvers.costs.columns import entry_ns
from daskkern.training.feeding.scratch import scratch_folder
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.timing import disk_ns, disk_pays, memory_pays
from daskkern.training.run.settings import FitSettings

DISK_SHARE = 0.5
"""Share of the free disk that the scratch files of all ranks of a machine may take."""
_COPIES = 4 * 3  # arrays of a state (iterate, mean, two cached models), and copies of each during a commit
_KEPT_SHARE = 0.05
MEASURE_FROM = 256_000_000
"""Bytes of blocks from which a measurement decides whether caching them in memory pays: below, it costs more."""


def disk_room(settings: FitSettings, ranks_here: int = 1) -> int:
    """Return the bytes that one of `ranks_here` ranks of this machine may write to the folder for scratch files.

    A folder on a file system in memory counts as 0 bytes unless it was given explicitly.
    """
    folder = scratch_folder(settings)
    if not os.path.isdir(folder):
        if settings.scratch is not None:
            raise SpecError(f"the scratch folder {folder} does not exist; create it, or leave scratch out")
        return 0
    if is_in_memory(folder) and settings.scratch is None:
        return 0
    room = int(DISK_SHARE * shutil.disk_usage(folder).free) // max(1, ranks_here)
    return room if settings.disk_budget is None else min(room, settings.disk_budget)


def needs_rates(plan: MemoryPlan, settings: FitSettings, room: int) -> bool:
    """Return whether the choice needs a calibration."""
    if plan.kept:
        return settings.keep_blocks == "auto" and plan.kept >= MEASURE_FROM
    return _could_use_disk(plan, settings) and plan.kept_wanted <= room and settings.keep_blocks == "auto"


def with_blocks(plan: MemoryPlan, settings: FitSettings, room: int, rates: Rates | None) -> MemoryPlan:
    """Return the plan with the place of the blocks decided, and a note with the place and the reason.

    Parameters
    ----------
    room : int
        Bytes that the rank may write to disk.
    rates : Rates or None
        From a calibration, where :func:`needs_rates` calls for one.

    Raises
    ------
    MemoryBudgetError
        When "disk" was requested and the disk has no room.
    """
    if plan.sizes is not None and plan.sizes.reshuffle and settings.keep_blocks == "auto" and settings.passes > 1:
        size = format_bytes(plan.sizes.blocks_bytes)
        how = "other rows in every epoch; keep_blocks='memory' or 'disk' keeps blocks and rows of batches"
        return replace(plan, note=f"{size} a rank, not cached: batches hold {how}")
    if not plan.kept_wanted:
        return plan
    size = format_bytes(plan.kept_wanted)
    # Of small blocks a fit measures nothing: a plan that has measured for its estimate must decide as the fit will.
    if plan.kept and rates is not None and plan.sizes is not None and needs_rates(plan, settings, room):
        costs = (
            f"filling the cache costs {1e9 * plan.sizes.itemsize / rates.fresh:.2g} ns per entry, "
            f"each later epoch saves {entry_ns(plan.sizes, rates):.2g} ns"
        )
        if not memory_pays(plan.sizes, rates, settings.passes):
            note = f"{size} a rank, recomputed in every epoch, which is cheaper: {costs}"
            return replace(plan, kept=0, note=note).with_rows()
        return replace(plan, note=f"{size} a rank, cached in memory: {costs}")
    if plan.kept:
        return replace(plan, note=f"{size} a rank, cached in memory")
    if settings.keep_blocks == "disk":
        return replace(_requested_disk(plan, room), note=f"{size} a rank, cached on disk as requested")
    if settings.passes == 1:
        return replace(plan, note=f"{size} a rank, not cached: there is only one epoch")
    moved = plan.on_disk()
    reason = _against_disk(plan, moved, settings, room, rates)
    if reason is not None:
        return replace(plan, note=f"{size} a rank, recomputed in every epoch{reason}")
    return replace(moved, note=f"{size} a rank, cached on disk: {_costs(plan, settings, rates)}")


def _against_disk(
    plan: MemoryPlan, moved: MemoryPlan, settings: FitSettings, room: int, rates: Rates | None
) -> str | None:
    """Return the reason why blocks that do not fit into memory are not cached on disk either, or None."""
    if not _could_use_disk(plan, settings):
        return ""
    if plan.kept_wanted > room:
        return f": they fit neither in memory nor in the {format_bytes(room)} of disk that may be used"
    if rates is None or rates.disk is None or plan.sizes is None:
        return ": they do not fit in memory, and the disk could not be measured"
    if rates.disk.cached:
        return ": they do not fit in memory, and only the system's cache could be measured, not the disk"
    if not disk_pays(plan.sizes, rates, settings.passes):
        return f": too little is saved, {_costs(plan, settings, rates)}"
    if moved.total > plan.budget:
        return ": there is no memory for blocks on their way to the disk"
    return None


def _costs(plan: MemoryPlan, settings: FitSettings, rates: Rates | None) -> str:
    assert rates is not None
    assert rates.disk is not None
    assert plan.sizes is not None
    cost = disk_ns(plan.sizes, rates.disk, settings.passes)
    return (
        f"the disk costs {cost:.2g} ns per entry and epoch ({format_bytes(rates.disk.read)}/s in {rates.disk.folder}), "
        f"computing {entry_ns(plan.sizes, rates):.2g} ns"
    )


def _could_use_disk(plan: MemoryPlan, settings: FitSettings) -> bool:
    open_to_it = settings.keep_blocks == "auto" and settings.passes > 1
    return bool(plan.kept_wanted) and not plan.kept and open_to_it and plan.sizes is not None


def _requested_disk(plan: MemoryPlan, room: int) -> MemoryPlan:
    if plan.kept_wanted > room:
        raise MemoryBudgetError(
            f"got keep_blocks='disk', but the kernel blocks of one rank take {format_bytes(plan.kept_wanted)} "
            f"and {format_bytes(room)} of disk may be used; give --set scratch=FOLDER on a larger disk, a larger "
            "--set disk=SIZE, or keep_blocks='auto'"
        )
    return plan.on_disk()


def without_blocks(plan: MemoryPlan) -> MemoryPlan:
    """Return the plan of a fit without kernel blocks to cache."""
    return replace(plan, kept=0, kept_wanted=0)


def can_keep(plan: MemoryPlan, settings: FitSettings, n_columns: int, n_outputs: int) -> bool:
    """Return whether every rank has room for the whole state, which is there three times while it is gathered."""
    return _COPIES * n_columns * n_outputs * np.dtype(settings.dtype).itemsize <= _KEPT_SHARE * plan.budget
