"""What commands are given: models, shapes, inputs and weights, from files or by name."""
