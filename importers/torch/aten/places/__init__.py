"""Elements at places that are data: gathered, written, sorted out."""
