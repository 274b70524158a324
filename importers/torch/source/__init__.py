"""What torch hands over: programs, their ends, places in the user's source, decompositions."""
