"""What is asked: boxes and arrows, the SQL and the fluent way to draw them, and how they are rewritten."""
