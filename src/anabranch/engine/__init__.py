"""How Spark answers: the session, and the reading and writing of logs by Spark tasks."""
