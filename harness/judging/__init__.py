"""Verdicts: the words of one table, and the two keys that decide them."""
