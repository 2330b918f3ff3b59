"""One trial, from a configuration to a trained network, its measures and its cost. Knows neither Ray nor MLflow."""
