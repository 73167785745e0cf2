"""Turning files and dask collections into stores: in bounded memory, completely or not at all."""

from daskkern.data.ingest.pipeline.report import IngestReport
from daskkern.data.ingest.pipeline.run import ingest
from daskkern.data.ingest.readers.dask_tables import DaskArrays

__all__ = ["DaskArrays", "IngestReport", "ingest"]
