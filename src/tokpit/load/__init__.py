"""The load generator: aiohttp and the standard library only; imports nothing else of tokpit."""
