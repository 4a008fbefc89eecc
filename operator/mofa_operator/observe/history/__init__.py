"""The history of failures of a pool, from Prometheus and from the watch."""
