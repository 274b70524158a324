"""Images: resizing, and sampling at places that are data."""
