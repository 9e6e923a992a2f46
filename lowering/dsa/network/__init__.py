"""The network to schedule: its sizes on the accelerator, and which part of what needs which."""
