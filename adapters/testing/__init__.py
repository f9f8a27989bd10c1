"""Servers that speak a chat platform's protocol at the wire, for tests of any bot: yours, with whatever client library it uses, too.

Each holds every call against the platform's rules; what breaks one is refused as the platform would, and stands in `violations`.
"""
