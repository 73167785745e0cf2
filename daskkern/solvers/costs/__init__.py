"""The memory and time of one rank: the sizes of its fit, the primitives, and the share of each method."""
