"""The parts of the reproduction: what the papers report, how it is run here, and the page of both."""
