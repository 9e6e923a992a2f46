"""Models as terms, saturation in a separate process, and terms as models again."""
