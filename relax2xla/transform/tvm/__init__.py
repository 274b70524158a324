"""Passes that are here for programs written for TVM."""
