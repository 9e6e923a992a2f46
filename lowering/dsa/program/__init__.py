"""Programs for the accelerator, as data and as text, and what must hold of them."""
