"""Options of commands: what they are called, and the settings that their words mean."""
