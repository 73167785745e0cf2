"""From stored rows to the batches of a rank: sources, encoded targets, cached kernel blocks."""
