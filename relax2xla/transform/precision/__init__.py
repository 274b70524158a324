"""In which dtypes programs compute."""
