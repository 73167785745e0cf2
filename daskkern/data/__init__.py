"""Rows on disk and in memory: Zarr stores, ingestion, and the seeded order of mini-batches.

``rows`` is the interface that training reads through; ``storage`` opens and writes stores; ``rows.batches`` reads
mini-batches; ``ingest`` turns files into stores.
"""
