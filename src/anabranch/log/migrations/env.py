"""Alembic's entry: runs the migrations on the connection that `catalog` holds a lock on."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True)
context.run_migrations()
