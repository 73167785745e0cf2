"""Benchmarks for asv; asv.conf.json in this folder names it."""
