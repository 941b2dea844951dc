# Written by kvcanary-gen from the spec; edit that instead.
"""Subcommands of the command line, one module each."""
