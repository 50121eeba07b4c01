"""TLS and HTTP/2 beside nginx and granian."""
