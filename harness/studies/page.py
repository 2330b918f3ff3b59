"""A study on one page: what the paper says, whether it held, figures, numbers, how to reproduce them."""

from collections.abc import Iterable, Mapping, Sequence

from harness.comparing.numbers import mean_and_spread, plain
from harness.comparing.render import markdown_table
from harness.comparing.tables import TableView
from harness.comparing.values import LOSS_PARTS
from harness.measures import QUALITIES, judged
from harness.reporting.drawing import Drawing
from harness.reporting.page import badge, banner, figures, page, section, tables
from harness.reporting.reproduce import made_with
from harness.schema.records import Unit
from harness.schema.settings import Margins
from harness.statistics import mean_interval
from harness.studies import across
from harness.studies.across import Across
from harness.studies.claims import ANSWERS, Judgement, as_tables, by_itself
from harness.studies.readings import NETWORKS
from harness.studies.results import StudyResults
from harness.studies.words import name_of
from harness.text.shown import counted, html_text, markdown_text

# table → reading → heading
READING_TABLES = {
    "Depth (blocks)": {
        "d_opt": "d_opt",
        "d_argmax": "by argmax",
        "d_threshold": "by threshold",
        "d_expected": "by expectation",
        "d_exact": "exact posterior",
        "posterior_gap": "posterior gap (nats)",
    },
    **{
        f"Test {quality.title}" + (f" ({quality.unit})" if quality.unit else ""): {
            name.format(quality.field): network for name, (network, _) in NETWORKS.items()
        }
        for quality in QUALITIES
    },
    **{
        f"Test {quality.title} lost against the search over every depth": {
            f"{part.replace(' ', '_')}_{quality.field}": part for part in LOSS_PARTS
        }
        for quality in QUALITIES
        if quality.better == "higher"
    },
    "Speed": {"forward_saving": "forward time saved", "blocks_saved": "blocks left out"},
    "Cost": {"tflop": "TFLOP", "device_seconds": "device-s"},
}

SUMMARY = {
    "tflop": "TFLOP",
    "d_opt": "d_opt",
    "d_exact": "exact posterior",
    "posterior_gap": "gap (nats)",
    **{quality.field: quality.title for quality in judged(Margins())},
}


def build_page(
    results: StudyResults,
    judgements: Sequence[Judgement],
    drawings: Sequence[Drawing],
    command: str,
    over_spaces: Across | None = None,
) -> str:
    """The whole page. The same results give the same bytes: there is no date in it."""
    file = results.study.file
    body = [
        "<header><p class=kicker>Depth search harness · study</p>",
        f"<h1>{html_text(file.title)}</h1>",
        f"<p class=lead>Paper: {html_text(file.paper)}. Scale {results.study.scale}, {html_text(_seeds(results))}.</p>",
        "</header>",
        *section("claims", "Did it hold?", _claims(results, judgements)),
        *(section("across", "Across spaces", _across(over_spaces)) if over_spaces else []),
        *section("figures", "Figures", figures(drawings)),
        *section("tables", "Numbers", tables([*summary_tables(results), *reading_tables(results)])),
        *section("reproduce", "How to reproduce", _reproduce(results, command)),
    ]
    return page(f"{file.name} · depth search study", body)


def as_markdown(
    results: StudyResults,
    judgements: Sequence[Judgement],
    drawings: Sequence[Drawing],
    command: str,
    over_spaces: Across | None = None,
) -> str:
    """A section of a document in the same folder as the figures."""
    file = results.study.file
    lines = [f"## {markdown_text(file.name)}: {markdown_text(file.title)}", ""]
    reduced = f": {markdown_text(results.study.settings.reduced)}" if results.study.settings.reduced else ""
    seeds = _seeds(results)
    told = f"Scale {results.study.scale}{reduced}. {seeds[0].upper()}{markdown_text(seeds[1:])}."
    lines += [f"Paper: {markdown_text(file.paper)}. {told}"]
    lines += ["", "```sh", command, "```", ""]
    lines += [
        f"- **{judgement.answer}**: {markdown_text(judgement.says)} ({markdown_text(judgement.why)}; "
        f"paper: {markdown_text(judgement.claim.paper)})"
        for judgement in by_itself(judgements)
    ]
    if over_spaces:
        spaces = across.as_markdown(over_spaces)  # what was not run is named there
        lines += ["", *(f"#{line}" if line.startswith("## ") else line for line in spaces[:-1])]
    for view in (*as_tables(judgements), *summary_tables(results)):
        heading, *table = markdown_table(view)
        lines += ["", f"#{heading}", *table[:-1]]
    for name, why in results.not_run.items() if over_spaces is None else ():
        lines += ["", f"Not run: {markdown_text(name)}: {markdown_text(why)}."]
    if missing := _missing(results):
        lines += ["", f"Missing: {markdown_text(missing)}."]
    for drawing in drawings:
        lines += ["", f"![{markdown_text(drawing.title)}](./{drawing.name}.png)", ""]
        lines += [f"*{markdown_text(drawing.caption)}*"]
    lines += ["", markdown_text(f"{_spent(results)} Made with {_versions(results)}."), ""]
    return "\n".join(lines)


def summary_tables(results: StudyResults) -> list[TableView]:
    """Where there are several one-shots: what a reader asks first, of every method."""
    return _tables(results, {"Every method": SUMMARY}) if len(results.one_shots) > 1 else []


def reading_tables(results: StudyResults) -> list[TableView]:
    return _tables(results, READING_TABLES)


def _tables(results: StudyResults, readings: Mapping[str, Mapping[str, str]]) -> list[TableView]:
    """Those columns that some network fills; a row for every cell, with several one-shots for every method of it."""
    several = len(results.one_shots) > 1
    networks = [(cell, method) for cell in results.cells for method in (results.methods if several else [None])]
    names = [f"{name_of(cell)}, {method}" if method else name_of(cell) for cell, method in networks]
    counts = [
        str(len(results.readings("d_opt", cell, method)) if method else len(results.of(cell)))
        for cell, method in networks
    ]
    views = []
    for title, headings in readings.items():
        columns = {
            heading: [_mean(list(results.readings(reading, cell, method).values())) for cell, method in networks]
            for reading, heading in headings.items()
        }
        filled = {heading: column for heading, column in columns.items() if set(column) != {_NOTHING}}
        if filled:
            rows = tuple(zip(names, counts, *filled.values(), strict=True))
            views.append(TableView(title, _SPREAD, ("networks", "seeds", *filled), rows))
    return views


_NOTHING = "–"
_SPREAD = "Mean over seeds ± half of the 95 % t interval; a network that learns its depth is pruned to d_opt."


def _mean(numbers: Sequence[float]) -> str:
    return mean_and_spread(mean_interval(numbers)) if numbers else _NOTHING


# --- parts --------------------------------------------------------------------------------------------------------


def _claims(results: StudyResults, judgements: Sequence[Judgement]) -> Iterable[str]:
    answers = [judgement.answer for judgement in judgements]
    counts = ", ".join(f"{answer}: {count}" for answer in ANSWERS if (count := answers.count(answer)))
    yield f"<p class=headline>{counted(len(answers), 'claim')}. {f'{counts.capitalize()}.' if counts else ''}</p>"
    if reduced := results.study.settings.reduced:
        yield banner("Smaller than in the paper", f"{reduced}.")
    for name, why in results.not_run.items():
        yield banner("Not run", f"{name}: {why}.")
    if missing := _missing(results):
        yield banner("Missing", f"{missing}.")
    yield "<div class=cards>"
    for judgement in by_itself(judgements):
        kind = badge(judgement.answer)
        yield (
            f'<article class=card style="--method:var(--{kind})"><h3>{html_text(judgement.says)}</h3>'
            f'<p class=badges><span class="badge {kind}">{judgement.answer}</span></p>'
            f"<p class=sentence>{html_text(judgement.why)}.</p>"
            f"<p class=sentence>Paper: {html_text(judgement.claim.paper)}.</p></article>"
        )
    yield "</div>"
    yield from tables(as_tables(judgements))


def _across(found: Across) -> Iterable[str]:
    yield f"<p class=headline>{html_text(found.sentence)}</p>"
    for name, why in found.not_judged.items():
        yield banner("Not judged", f"{name}: {why}.")
    yield from tables([*across.tables(found), *across.space_tables(found)])


def _reproduce(results: StudyResults, command: str) -> Iterable[str]:
    yield f"<pre><code>{html_text(command)}</code></pre><p>{html_text(_spent(results))}</p><h3>Made with</h3><dl>"
    for name, values in made_with(_units(results)).items():
        yield f"<dt>{html_text(name)}</dt><dd>{html_text(', '.join(values))}</dd>"
    yield "</dl>"


def _units(results: StudyResults) -> list[Unit]:
    """In the study's order, whatever the order on disk."""
    return [
        unit
        for cell in results.cells
        for _, by_method in sorted(results.of(cell).items())
        for _, unit in sorted(by_method.items())
    ]


def _seeds(results: StudyResults) -> str:
    """Which, or how many of each cell where they differ."""
    by_cell = {name_of(cell): list(results.of(cell)) for cell in results.cells}
    if any(sorted(seeds) != results.seeds for seeds in by_cell.values()):
        return "seeds: " + ", ".join(f"{len(seeds)} of {name}" for name, seeds in by_cell.items())
    return f"seed{'s' * (len(results.seeds) > 1)} {', '.join(map(str, results.seeds))}"


def _missing(results: StudyResults) -> str:
    """Networks that were asked for, or that another method of the same cell and seed has; "" when none is missing."""
    asked = range(results.study.settings.seeds)
    found = [
        f"{name_of(cell)}, {method} seed {seed}"
        for cell in results.study.cells
        if name_of(cell) not in results.not_run
        for seed in sorted({*asked, *results.of(cell)})
        for method in results.methods
        if method not in results.of(cell).get(seed, {})
    ]
    return "; ".join(found)


def _spent(results: StudyResults) -> str:
    units = _units(results)
    # What several methods were told of was trained once.
    trained = {(t.config_hash, t.seed, t.started_at): t.cost.device_seconds for unit in units for t in unit.trials}
    return f"{counted(len(trained), 'network')} trained in {plain(sum(trained.values()))} device-seconds."


def _versions(results: StudyResults) -> str:
    found = made_with(_units(results))
    names = ("harness", "Python", "torch", "Ray", "machine", "device")
    return "; ".join(f"{name} {', '.join(found[name])}" for name in names)
