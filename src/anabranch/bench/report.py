"""What a benchmark says: the same as an experiment of the lab does."""

from __future__ import annotations

from anabranch.model.report import Claim, Report

__all__ = ["Claim", "Report"]
