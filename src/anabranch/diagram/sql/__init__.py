"""What is asked, in SQL: a small grammar around expressions that only Spark reads.

`parse.parse` makes statements of text, `compile.compile_query` makes boxes of a `CREATE STREAM ... AS`.
The clauses are ours; whatever stands between them is cut out of the user's text as it is.
"""
