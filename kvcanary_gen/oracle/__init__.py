"""The scalar interpreter: what the spec means, in plain Python integers. Judges the generated code; never shipped."""
