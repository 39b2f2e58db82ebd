"""What flows: schemas, runs and their headers, stability, time, progress, errors.

Nothing here does I/O, reads a clock, or knows Spark; every other package may import it.
"""
