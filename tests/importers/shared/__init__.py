"""Tests of what several importers do alike."""
