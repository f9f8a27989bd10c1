"""The HTTP API, and the webhooks of platforms."""
