"""Thin layers over the standard library that every other layer may use: processes, temporary folders, files."""
