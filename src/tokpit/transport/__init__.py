"""One connection a host: SSH or local; bytes, byte-offset tails, HTTP through the connection."""
