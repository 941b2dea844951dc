# Written by kvcanary-gen from the spec; edit that instead.
"""Engines that the canary knows how to attach to; each is imported by those who use it, and by nobody else."""
