"""Pictures and traces of a simulated run, for people."""
