"""Searches that train nothing and start no Ray: on recorded trials, or on made-up curves."""
