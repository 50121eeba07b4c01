"""Slow clients and slow disks beside ordinary ones: see README.md."""
