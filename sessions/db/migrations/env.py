"""What alembic runs for every command: migrate on the connection that was handed in."""

from alembic import context

from sessions.db.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
