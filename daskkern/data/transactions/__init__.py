"""Folders and groups that exist whole or not at all."""
