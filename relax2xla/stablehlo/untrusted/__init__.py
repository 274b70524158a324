"""What programs of others may ask for, and how large and deep they may be; seen before XLA is."""
