"""ASGI and WebSocket beside granian and uvicorn."""
