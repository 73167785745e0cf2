"""Scores and predictions of fitted models, in bounded memory."""
