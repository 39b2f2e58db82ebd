"""Moments: a bucket, and how far the inputs of a box had come with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    bucket: int
    progress: int | None
