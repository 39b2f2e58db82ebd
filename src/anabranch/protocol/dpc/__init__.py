"""Delay, Process and Correct: replicas that answer within a bound, and end with the same answer (DPC)."""
