"""What the access log costs, and whether it has every line once: see README.md."""
