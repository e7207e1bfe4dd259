"""Measures convx beside torch's own convolutions: `python -m benchmarks --help`."""
