"""The routes of deployments, threads and runs, and their event streams."""
