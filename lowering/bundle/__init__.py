"""Compiled models as folders: their manifest, the cache of them, and running them."""
