"""What the scores of a fitted model mean, from rows that it has not learned from."""
