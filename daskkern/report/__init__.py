"""Reports on models: one self-contained HTML file, or a model card in Markdown."""

from daskkern.report.writing import check_places, write_markdown, write_report

__all__ = ["check_places", "write_markdown", "write_report"]
