"""Text that comes from outside (files, YAML, addresses) and text that goes out: read within bounds, shown harmless."""
