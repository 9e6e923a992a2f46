"""What a simulated run amounts to, for people."""
