"""Bodies of If, Loop and Scan: out of their operators before the rules are applied, and back afterwards."""
