"""What several importers do alike."""
