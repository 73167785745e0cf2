"""Rows of tables and arrays that a fit reads in place, without a store."""
