"""The paper's experiments: a network trained at every value of a setting, drawn and judged.

`definition` reads search_spaces/studies/*.yaml, `run` trains on the same runner as a search, `readings` takes numbers
from the records, `claims` judges, `figures` draws, `page` puts it all into one HTML file.
"""
