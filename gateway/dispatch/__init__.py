"""Which key has something to do, and who does it."""
