"""Extensions of the scheduler: admission of fits, and their registry."""
