"""The boxes of a diagram. Each says what it is; how Spark computes it is in `engine`, what it means in `reference`."""
