"""The progress of running jobs: steps, tokens per second, and records kept from look to look."""
