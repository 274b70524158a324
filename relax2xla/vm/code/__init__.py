"""Bytecode: its form, its checks, and what runs it."""
