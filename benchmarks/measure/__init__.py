"""What `benchmarks/bench.py` is made of. Needs torch, Triton and the generated package alone."""
