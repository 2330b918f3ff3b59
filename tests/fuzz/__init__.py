"""Malformed inputs by the thousand, against the real command line. `make fuzz`; CONTRIBUTING says when.

`python -m tests.fuzz --inputs 1000 --seed 0` makes the same inputs again; `--only space:17` makes and judges just that
one, and keeps its folder. `inputs` makes them, group by group, and knows of each whether it is valid; `judge` runs one.
"""
