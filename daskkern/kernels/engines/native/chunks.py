"""The chunks of columns of a compiled product, and where many features begin."""

CHUNK = 8
"""Panels of a chunk of columns, whose sums are fetched once a chunk."""
SPARSE_CHUNK = 4
"""Panels of a chunk of CSR columns: a sparse row meets all of them at once, and the sums must stay in registers."""
WIDE = 256
"""Features from which a tile's rows are reused for many columns, and the next panel is prefetched."""
LINE = 64
"""Bytes of a cache line."""


def chunk_panels(*, sparse_columns: bool) -> int:
    """Return the panels of a chunk of columns, at most CHUNK."""
    return SPARSE_CHUNK if sparse_columns else CHUNK
