"""What all routes of the API have in common: connections, keys, limits, errors."""
