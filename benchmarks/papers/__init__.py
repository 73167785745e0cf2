"""The parts of the reproduction: the papers' results, how they are run here, and the page of both."""
