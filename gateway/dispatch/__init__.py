"""Decides which session key has work, and which worker does it."""
