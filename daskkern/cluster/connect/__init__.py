"""Connections to a cluster, and the checks before a fit starts."""
