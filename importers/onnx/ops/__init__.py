"""Converters, by domain and kind of operator."""
