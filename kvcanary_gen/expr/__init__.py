"""Expressions: one typed tree, from text in a small subset of Python's syntax."""
