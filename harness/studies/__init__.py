"""The paper's experiments: a network trained at every value of a setting, drawn and judged.

`definition` reads search_spaces/studies/*.yaml; the cells run like any search. `readings` takes numbers from the
records, `claims` judges, `figures` draws, `page` puts it all into one HTML file.
"""
