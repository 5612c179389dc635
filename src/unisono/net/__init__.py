"""A world with a clock: UDP sockets in bursts, and the asyncio driver that steps a core."""
