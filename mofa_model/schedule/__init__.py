"""Pipeline schedules as data (`orders`), and the one replay that runs them all (`replay`)."""
