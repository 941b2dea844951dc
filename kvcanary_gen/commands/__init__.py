"""The commands of `kvcanary-gen`, one module each."""
