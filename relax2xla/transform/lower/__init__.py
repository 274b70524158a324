"""The way down: operators to StableHLO rows, symbolic sizes to dynamic rows, recursion to loops."""
