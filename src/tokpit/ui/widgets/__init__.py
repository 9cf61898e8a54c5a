"""Widgets that draw rows from the live store."""
