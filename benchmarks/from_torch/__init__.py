"""Models and operators of torch through the importer, beside torch."""
