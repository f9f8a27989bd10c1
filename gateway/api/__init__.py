"""The HTTP side: programs, other agents and the webhooks of platforms come in here."""
