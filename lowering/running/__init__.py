"""Running compiled models: loading them, in a process of their own too, and what they take."""
