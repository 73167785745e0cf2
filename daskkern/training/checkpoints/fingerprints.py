"""Fingerprints of fits: data, settings and schema, which a checkpoint must match to be resumed."""

import json
import uuid
import zlib
from dataclasses import fields, replace
from typing import Any

from daskkern.basis import BasisSpec
from daskkern.data.remote.stores import absolute
from daskkern.data.rows.batch_plan import ORDER
from daskkern.data.rows.rows import mean_row_bytes
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.storage.checksums import checksum_of
from daskkern.data.transactions.atomic import check_destination
from daskkern.errors import StoreError
from daskkern.kernels import Kernel
from daskkern.models.store import FORMAT
from daskkern.training.checkpoints.checkpoint import (
    begin_checkpoint,
    is_checkpoint,
    open_checkpoint,
    read_fingerprint,
    remove_checkpoint,
)
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.listing import reason_of_model
from daskkern.training.feeding.batch_reshuffling import reshuffles_batches
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import BATCH_ELEMENTS, FitSettings
from daskkern.training.setup.scaling import may_scale_nonlinearly

_CHANGEABLE = ("max_epochs", "max_seconds", "groups")  # a resumed run may be longer, and on other ranks


def named(job: FitJob) -> FitJob:
    """Return the job with the name of a new run and the fingerprint of the fit in its policy.

    A checkpoint of another fit is refused here, and so is one that would be overwritten without `overwrite`.

    Raises
    ------
    StoreError
        The message names the differences.
    """
    policy = job.policy
    if policy.checkpoint is None and not policy.resume:  # there is nothing to compare
        return job
    place = None if policy.checkpoint is None else absolute(policy.checkpoint)  # workers have other working directories
    if place is not None and not policy.resume and is_checkpoint(place):
        if not policy.overwrite:
            raise StoreError(
                f"a checkpoint of an earlier fit is at {place}; continue from it with --resume "
                "(resume=True), or start again with --overwrite (overwrite=True)"
            )
        remove_checkpoint(place)
    job = _with_its_batches(job, place)
    policy = replace(policy, checkpoint=place, run=policy.run or uuid.uuid4().hex, fingerprint=fingerprint(job))
    policy.saved()
    if place is not None:
        policy = replace(policy, claim=begin_checkpoint(place, policy.run, policy.record))
    return replace(job, policy=policy)


def _with_its_batches(job: FitJob, place: str | None) -> FitJob:
    """Return a job that resumes a run with the limit of automatic batches that the run began with, on any device."""
    policy = job.policy
    if not policy.resume:
        return job
    if place is None:
        record = {} if policy.earlier is None else json.loads(policy.earlier.fingerprint)
    else:
        record = read_fingerprint(place)
    elements = record.get("settings", {}).get("batch_elements", BATCH_ELEMENTS)
    return replace(job, settings=replace(job.settings, batch_elements=elements)) if record else job


def with_settings(job: FitJob, settings: FitSettings) -> FitJob:
    """Return the job with `settings`, which may have another limit of batches, and their fingerprint if it has one."""
    if settings.batch_elements == job.settings.batch_elements:
        return job
    job = replace(job, settings=settings)
    if job.policy.fingerprint == CheckpointPolicy.fingerprint:
        return job
    return replace(job, policy=replace(job.policy, fingerprint=fingerprint(job)))


def check_model_place(out: str, checkpoint: str, *, overwrite: bool, resume: bool = False) -> None:
    """Raise StoreError before the fit where it would replace a model without `overwrite`.

    A model next to a checkpoint is that of an interrupted fit: :func:`named` decides on both.

    Parameters
    ----------
    out, checkpoint : str
        Paths or URLs of the model and of the progress.
    overwrite : bool
        Whether an older model may be replaced. Anything else at `out` is never replaced.
    resume : bool
        Whether the fit continues, so that the model of a run that was cut short before its first commit is replaced.

    Raises
    ------
    StoreError
        When `out` is taken.
    """
    replaces = overwrite or is_checkpoint(checkpoint) or (resume and _cut_short(out, checkpoint))
    check_destination(out, kind=FORMAT, overwrite=replaces)


def _cut_short(out: str, checkpoint: str) -> bool:
    """Return whether `out` is a model that was cut short, and a checkpoint was begun at `checkpoint`."""
    return open_checkpoint(checkpoint) is not None and reason_of_model(out) in ("interrupted", "max_seconds")


def fingerprint(job: FitJob) -> str:
    """Return the fingerprint of a fit: JSON of all that its course depends on."""
    source, settings, validation = job.source, job.settings, job.validation
    chosen = {key: value for key, value in settings.summary().items() if key not in _CHANGEABLE}
    chosen |= {"basis": basis_summary(settings.basis), "function": _function(settings.kernel)}
    if isinstance(settings.scale, Scaling):
        chosen["scale"] = _scaling_sum(settings.scale)
    record = {
        "settings": chosen,
        "batches": _batches(source, settings),
        "data": _data(source),
        "validation": None if validation is None else _data(validation),
    }
    if may_scale_nonlinearly(settings, source):  # older versions, without bends, learned another scaling
        record["features"] = "bent where rows allow it"
    return json.dumps(record, sort_keys=True, default=str)


def _batches(source: RowSource, settings: FitSettings) -> str:
    info = source.info
    reshuffle = reshuffles_batches(settings, info.n_rows, mean_row_bytes(info.n_rows, info.n_features, info.n_stored))
    rows = source.open(settings.dtype)
    order = f"{ORDER} of chunks decoded whole" if rows.decodes_chunks else ORDER
    if rows.decodes_chunks and not rows.reads_pieces and rows.chunk_edges is None:
        order = f"{ORDER} of equal groups"
    return f"{order}, dealt anew in every epoch" if reshuffle else order  # compared with what older versions wrote


def basis_summary(basis: BasisSpec) -> dict[str, Any]:
    """Return the parameters of a function space, points by their checksum."""
    chosen = {item.name: getattr(basis, item.name) for item in fields(basis)}
    return {name: checksum_of(value) if name == "points" else str(value) for name, value in chosen.items()}


def _function(kernel: Kernel) -> int | None:
    """Return a checksum of the code of a user-defined kernel."""
    code = getattr(getattr(kernel, "function", None), "__code__", None)
    return None if code is None else zlib.crc32(code.co_code + repr(code.co_consts).encode())


def _data(source: RowSource) -> dict[str, Any]:
    info = source.info
    return {
        "n_samples": info.n_rows,
        "n_features": info.n_features,
        "n_targets": info.n_targets,
        "task": info.task,
        "classes": None if info.classes is None else [str(label) for label in info.classes],
        "scaling": _scaling_sum(info.scaling),
        **source.digest(),
    }


def _scaling_sum(scaling: Scaling | None) -> int | None:
    """Return a checksum of a scaling; without bends and ranks it equals that of older versions, which had none."""
    if scaling is None:
        return None
    text = repr(scaling).replace(", bend=()", "")  # without ranks, which are long
    return zlib.crc32((f"{text[:-1]}, ranks={scaling.ranks!r})" if scaling.ranks else text).encode())
