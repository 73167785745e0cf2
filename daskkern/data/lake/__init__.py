"""Tables in many Parquet files, local or behind URLs: a lake is a list of row groups with one schema."""

from daskkern.data.lake.lake import Lake
from daskkern.data.lake.lake_piece import LakePiece
from daskkern.data.lake.opening import open_lake

__all__ = ["Lake", "LakePiece", "open_lake"]
