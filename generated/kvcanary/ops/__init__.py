# Written by kvcanary-gen from the spec; edit that instead.
"""One room an operation: contract, validator, Triton kernel, launcher and reference."""
