"""What building, reading, writing and passes cost, and whether they come back the same."""
