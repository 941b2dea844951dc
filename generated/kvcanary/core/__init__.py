"""What operations share: dispatch, checks, and the language's own functions."""
