"""From columns of a table to features, targets and weights."""
