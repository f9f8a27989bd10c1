"""The chat platforms: who may talk, what comes in, what goes out, and how it looks meanwhile."""
