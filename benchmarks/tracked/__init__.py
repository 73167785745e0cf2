"""What asv tracks: benchmarks/asv.conf.json names this folder."""
