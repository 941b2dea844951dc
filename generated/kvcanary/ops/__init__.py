"""One room an operation: contract, validator, Triton kernel, launcher and reference."""
