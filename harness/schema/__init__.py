"""What stands on disk: settings and records, what identifies them, and how older ones are read."""
