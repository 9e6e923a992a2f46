"""The layout of feature maps for each group of a partition."""
