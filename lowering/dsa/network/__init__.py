"""The network to schedule: its sizes on the accelerator, and which part of a value needs which."""
