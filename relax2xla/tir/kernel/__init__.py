"""Loop-level functions whole: completed, checked, compared, specialised, run on numpy arrays."""
