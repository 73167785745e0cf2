"""The colors of plots, dashboard and reports: one meaning each, legible on light and dark backgrounds."""

from collections.abc import Mapping

COLORS = ("#2f6fb5", "#d9762b", "#2f8f5b", "#b0437a", "#7a6bc4", "#8a7433", "#3aa3b0", "#666666")
"""Of classes, fits or systems, in their order."""
TRAINING, VALIDATION = "#3d8bdb", "#e07b39"
"""What was measured on training rows and on validation rows."""
FIT_COLORS = COLORS[:6]
"""Of fits whose curves are drawn over each other, where lines of validation rows are dashed instead."""
PART_COLORS: Mapping[str, str] = {
    "computing": "#2f9e6b",
    "reading": "#d8b13c",
    "checkpointing": "#9c6b30",
    "waiting": "#e58fb0",
    "exchanging": "#9a6fd0",
}
"""Of the parts of the time of an epoch."""
STAGE_COLORS = ("#56616d", "#7d8894", "#a5afb9", "#67727e", "#8f9aa5", "#b6bfc8")
"""Greys of the stages before the first epoch and of what lies between epochs; neighbors differ."""
EIGENVALUES, FLATTENED = "#2b9aa8", "#c9514c"
"""The spectrum of the kernel operator, before and after preconditioning."""
