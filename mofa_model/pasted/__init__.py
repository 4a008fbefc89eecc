"""What people have, read: scripts, files of settings, models, machines. Nothing in it is run."""
