"""Insurers' losses, corrected year after year."""
