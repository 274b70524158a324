"""What a model costs and how long it takes, by layer."""
