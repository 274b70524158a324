"""What functions in C++ and oneDNN compute: composites with their forms in rows."""
