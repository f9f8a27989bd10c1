"""Conversations of other programs, read from a copy of their home. Theirs stays as it is."""
