"""What a schedule starts from: the draft, the blocks and extents of its function, and the layouts of weights."""
