"""A page for each paper: its tables beside convx's committed results, `python -m benchmarks.papers`."""
