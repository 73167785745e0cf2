"""Turning files into stores: one pass over each file, in bounded memory, whole or not at all."""

from daskkern.data.ingest.run import IngestReport, ingest

__all__ = ["IngestReport", "ingest"]
