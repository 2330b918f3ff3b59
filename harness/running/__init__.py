"""Searches while they run, and what they leave on disk.

`search` asks and tells a method, `unit` is one method on one seed, `ledger` its events, `result` its outcome,
`store` its folder. `runner` drives many units on Ray Tune (`side_by_side`, `worker`, `messages`), `rehearsal` drives
them on made-up curves for `conformance`.
"""
