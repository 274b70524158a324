"""Results held against those of others, down to the first part that departs."""
