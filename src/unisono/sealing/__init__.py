"""Authenticated encryption of packets: bytes in, bytes out. Worlds hold it, no protocol does."""
