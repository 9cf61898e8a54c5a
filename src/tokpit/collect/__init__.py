"""Loops that turn bytes from a host into records."""
