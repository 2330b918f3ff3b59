"""Many searches on recorded trials: nothing is trained and no Ray is started."""
