"""The Textual front end: drawing, and the pump that repaints what changed."""
