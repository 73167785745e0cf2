"""The kinds of columns that are converted in machine code, and the words of such a call."""

CALL = ("columns", "n_columns", "n_rows", "stride", "codes", "beyond")
"""Words of a call, each 64 bits: the address of the words of its columns, how many these are, the rows, how many
float32 values lie from one feature to the next, the address of a buffer of 32-bit codes, and that of a word that is set
to 1 where an index is beyond its table."""

COLUMN = ("values", "validity", "fill", "divisor", "out", "moments", "table", "n_codes", "width")
"""Words of a column: addresses of its values, of its bitmap of present values (0: all are) and of its first feature,
after the bits of the float32 that replaces missing values, and of the float64 by which times are divided; the address
of four moments of each feature; of categories the address of their codes by index, the last one of missing values, and
how many codes these are; and the number of features."""

KINDS: dict[str, tuple[str, int, bool, bool]] = {
    "float32": ("f", 4, True, False),
    "float64": ("f", 8, True, False),
    **{f"int{8 * size}": ("i", size, True, False) for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": ("i", size, False, False) for size in (1, 2, 4, 8)},
    "time": ("i", 8, True, True),
    "boolean": ("b", 0, False, False),
}
"""Letter, bytes, whether values have a sign, and whether they are divided to become days."""
