"""What happens to jobs: their pods, their interruptions, and the record of a run."""
