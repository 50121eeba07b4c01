"""Pools that steer themselves, measured on the real server."""
