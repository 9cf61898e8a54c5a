"""The sanity check after a launch."""
