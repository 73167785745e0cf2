"""Remote stores, addressed by URL."""
