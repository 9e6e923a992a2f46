"""What runs in the environments of other tools than PyTorch: networks and estimators, and their export."""
