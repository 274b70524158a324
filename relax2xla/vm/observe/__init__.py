"""What a machine did, and how long it took."""
