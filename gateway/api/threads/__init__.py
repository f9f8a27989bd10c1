"""Deployments, threads, runs, and the events that tell of them."""
