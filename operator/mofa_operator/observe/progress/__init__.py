"""The progress of running jobs: steps, tokens per second, and the records that are carried from look to look."""
