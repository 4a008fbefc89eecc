"""The client of Prometheus, and every query that is built for it."""
