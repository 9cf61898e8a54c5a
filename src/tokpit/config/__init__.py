"""Inventory, folders, themes, keys."""
