"""Sweeps: planned, run from here or from hosts, checked against the server, kept."""
