"""What every part starts from: the target, a model's ports and weights, tools, threads, decisions and errors."""
