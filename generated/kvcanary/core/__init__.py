# Written by kvcanary-gen from the spec; edit that instead.
"""What operations share: dispatch, checks, and the language's own functions."""
