"""The stages of an ingestion."""
