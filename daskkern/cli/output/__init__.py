"""Output of commands: progress and results."""
