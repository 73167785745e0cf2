"""Turning files and dask collections into stores: in bounded memory, whole or not at all."""

from daskkern.data.ingest.dask_tables import DaskArrays
from daskkern.data.ingest.report import IngestReport
from daskkern.data.ingest.run import ingest

__all__ = ["DaskArrays", "IngestReport", "ingest"]
