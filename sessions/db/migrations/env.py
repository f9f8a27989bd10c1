"""What alembic runs for every command: migrate on the connection that was handed in."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
