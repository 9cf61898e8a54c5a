"""Functions from records to findings. Pure."""
