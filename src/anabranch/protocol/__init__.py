"""How replicas agree, without I/O: event and time in, actions out.

Nothing here reads a clock, draws a number, opens a socket, starts a thread or knows Spark; a site and the
lab drive the same objects.
"""
