"""One short program for each box: what it takes, what it says, and how it corrects itself."""

BOXES = ("filter", "map", "union", "split", "join", "lookup", "aggregate", "counts", "running", "resample", "first",
         "sort", "apply", "read", "write")  # fmt: skip
