"""Rows on disk and in memory: Zarr stores, ingestion, and the seeded order of mini-batches.

``rows`` is the contract that training reads; ``store`` opens and ``writer`` writes stores; ``batches`` deals rows
out; ``ingest`` turns files into stores.
"""
