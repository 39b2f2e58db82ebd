"""What people compare: benchmarks that print ratios against a named rival from the same run."""
