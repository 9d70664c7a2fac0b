"""Messages: what a model is sent and answers, in one neutral shape."""
