"""The configuration. `reading.load` reads and checks it, `model.Config` is what it holds.

Only what is cheap is imported here: most commands need the address of the database and nothing else.
"""

from gateway.config.sources import database_url

__all__ = ["database_url"]
