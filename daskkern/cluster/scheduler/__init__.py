"""What daskkern adds to a scheduler: admission, and the registry of fits."""
