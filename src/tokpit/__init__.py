"""tokpit: a terminal console for people who run LLM inference servers.

Nothing is imported here, so that `tokpit --version` and the first paint stay fast.
"""

__version__ = "0.1.0"
