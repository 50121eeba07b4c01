"""Milepost as a reverse proxy beside nginx, HAProxy and Caddy."""
