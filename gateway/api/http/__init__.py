"""What every request of the HTTP API passes, whatever it asks for."""
