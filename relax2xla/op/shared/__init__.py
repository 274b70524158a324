"""What the operators' units share: checks of struct-info rules, and lowerings to StableHLO rows."""
