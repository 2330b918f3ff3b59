"""Is a cluster file, this machine or a running Ray fit for a run? Every problem comes with its remedy."""
