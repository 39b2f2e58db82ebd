"""Upkeep: what keeps the cost of a step flat, done between steps by whoever advances (`keeper`)."""
