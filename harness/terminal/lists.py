"""What goes by name, as `harness list` shows it."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from harness.methods import first_sentence, known_methods
from harness.schema.networks import SHIPPED
from harness.spaces import known_spaces, load_space
from harness.studies.definition import known_studies, read_study
from harness.terminal.settings import first_paragraph


def known_tables() -> Iterator[Table]:
    """Search spaces, methods, networks, studies."""
    yield _table(("space", "what it is"), [(name, load_space(name).description) for name in sorted(known_spaces())])
    yield _table(("method", "what it is"), [(name, first_sentence(name)) for name in known_methods()])
    yield _table(("network", "what it is"), [(kind, first_paragraph(each)) for kind, each in SHIPPED.items()])
    studies = [(name, read_study(name)) for name in sorted(known_studies())]
    yield _table(("study", "what it is", "in the paper"), [(name, file.title, file.paper) for name, file in studies])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
