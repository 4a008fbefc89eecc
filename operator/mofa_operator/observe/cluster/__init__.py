"""What is remembered of the objects of the API server."""
