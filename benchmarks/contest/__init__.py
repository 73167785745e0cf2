"""The parts of time-to-error: data, contenders, and the race between them."""
