"""Rows of tables and arrays that a fit reads where they lie, without a store."""
