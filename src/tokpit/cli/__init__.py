"""The shell front end: text or JSON."""
