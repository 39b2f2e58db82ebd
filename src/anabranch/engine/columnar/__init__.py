"""The columnar kernel: partial results by DuckDB inside Spark's tasks.

Spark distributes only the names of segments. A task reads its segments, runs the linear boxes and the partial
aggregation, writes segments of partial results and reports them; nothing is exchanged between tasks, and no row
passes through the JVM or the driver. What is not in the proven subset, and what fails on some row, is the Spark
kernel's.
"""
