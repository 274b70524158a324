"""Calls, memory and start-up of the machine, and whole models beside the peers."""
