"""A report on a model: one HTML file that holds everything it shows."""

from daskkern.report.writing import check_places, write_report

__all__ = ["check_places", "write_report"]
