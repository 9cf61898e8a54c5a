"""Shared machinery for flags: tables a version, command-line reading as argparse reads it, checks, host dumps."""
