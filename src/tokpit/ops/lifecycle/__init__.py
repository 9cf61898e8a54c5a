"""Servers started, changed, stopped and adopted, by every method."""
