"""What commands print: progress over rows, and results."""
