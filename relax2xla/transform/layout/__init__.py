"""In which order values keep their axes."""
