"""Recordings: the stream of records into the live store, in one compressed file; see docs/recordings.md."""
