"""Fits, from settings to a model: preparation, plan, ranks, checkpoints, and jobs of their own."""
