"""Exports: text, Markdown, HTML, CSV, JSON."""
