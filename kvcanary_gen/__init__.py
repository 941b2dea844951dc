"""The generator: reads `spec/`, writes `generated/`, and proves that they agree."""
