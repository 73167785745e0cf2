"""The arguments of a compiled product: the words of its call, and the kind of function."""

from dataclasses import dataclass

FIELDS = (
    # rows: dense (pointer and stride in elements) or CSR
    "x", "x_stride", "x_starts", "x_columns", "n_rows", "n_features",
    "x_squared", "x_norm", "x_inverse",
    # columns: packed panels, or CSR rows that are spread chunk by chunk
    "z", "z_starts", "z_columns", "z_values", "z_rows", "z_squared", "z_norm", "z_inverse", "caps",
    "blocks", "first_block", "last_block", "constants",
    # buffers of the calling thread
    "tile_rows", "packed", "buffer", "lanes", "spread", "slots",
    # what is made
    "out", "out_stride", "head", "head_stride", "n_head", "n_outputs", "right", "right_stride",
)  # fmt: skip
"""Words of a call, each 64 bits: pointers and numbers. Strides count elements."""


@dataclass(frozen=True)
class CallKind:
    """The kind of function: its result, and the layout of rows and columns."""

    makes: str  # "block", "scores", "pull", "keep" (scores, and the block stays) or "stored" (pull from there)
    sparse_rows: bool
    sparse_columns: bool

    @property
    def name(self) -> str:
        """Name of the compiled function."""
        return f"{self.makes}_{'csr' if self.sparse_rows else 'dense'}_{'csr' if self.sparse_columns else 'dense'}"
