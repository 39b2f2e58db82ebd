"""What it plugs into: Spark's streaming sources, databases and files, and Spark's own `format("anabranch")`."""
