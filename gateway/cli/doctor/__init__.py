"""`hermes doctor`: looks at everything that can be wrong, and says what to do."""
