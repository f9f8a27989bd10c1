"""Models: the interface, OpenAI-compatible endpoints and what they do differently, and the practice model."""
