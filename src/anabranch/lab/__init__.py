"""What is proved: a deterministic simulator, fault schedules, checkers, and the papers' experiments."""
