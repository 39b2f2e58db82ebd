"""Where it rests: connection points. Runs, segments, overlay, catalog, positions, retention, views.

Everything works without Spark; what needs Spark to read or write rows is in `anabranch.engine`.
"""
