"""Models as terms, saturation in a process of its own, and terms as models again."""
