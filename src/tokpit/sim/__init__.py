"""The simulated GPU host, used by the demo and by tests."""
