"""Examples that run: `python -m examples.boxes`, `python -m examples.losses`, `python -m examples.flights`."""
