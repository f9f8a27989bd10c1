"""The agent's tools: typed functions, one file each, turned into JSON schemas."""
