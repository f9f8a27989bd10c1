"""Homes that other programs write themselves, for the tests of `hermes sessions import --from`."""
