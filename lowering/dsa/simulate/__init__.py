"""Running programs: on real bytes, and in cycles."""
