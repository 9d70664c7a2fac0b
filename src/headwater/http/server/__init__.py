"""The server: uvicorn with limits of connections and time, and its processes."""
