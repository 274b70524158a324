"""What a pass is, and what runs it."""
