"""A report on a model: one HTML file that holds everything it shows."""

from daskkern.report.writing import write_report

__all__ = ["write_report"]
