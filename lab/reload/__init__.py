"""Reloads, crashes and spread over processes and drivers: see README.md."""
