"""Live state in rings; history in SQLite; audit."""
