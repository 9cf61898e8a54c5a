"""Running of experiments: starts, measurements, and the way back. What decides is in tokpit.tune."""
