"""Tiles of registers and caches, from the figures of a device."""
