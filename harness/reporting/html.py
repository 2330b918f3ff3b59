"""The report: one HTML file with its style and figures inside. It loads nothing and runs no script."""

from collections.abc import Iterable, Sequence

from harness.comparing.costs import leading_cost
from harness.comparing.finished import finished_by_method
from harness.comparing.numbers import ratio, ratio_with_ends, seeds_named
from harness.comparing.sentences import names_phrase
from harness.comparing.tables import detail_tables, family, how_verdicts_follow, summary_tables, verdict_table
from harness.comparing.values import Comparison, Pair, Stage
from harness.judging.words import shown
from harness.keys import model_name
from harness.measures import DEVICE_SECONDS, QUALITIES, SIZE, TFLOP
from harness.reporting.gallery import all_figures
from harness.reporting.page import badge, banner, figures, page, section, tables
from harness.reporting.reproduce import reproduce
from harness.schema.records import Unit
from harness.statistics import Interval
from harness.text.shown import counted, html_text


def build_report(units: Sequence[Unit], comparison: Comparison) -> str:
    """The whole page. The same records give the same bytes: there is no date in it."""
    space = units[0].plan.space
    drawings = all_figures(finished_by_method(units, comparison.reference), comparison)
    seeds = seeds_named(comparison.seeds)
    lead = (
        space.description,
        f"{counted(len(comparison.methods), 'method')}, {seeds}.",
        names_phrase(comparison.full_names),
    )
    body = [
        "<header><p class=kicker>Depth search harness</p>",
        f"<h1>{html_text(comparison.space)}: {html_text(question(comparison))}</h1>",
        f"<p class=lead>{html_text(' '.join(filter(None, lead)))}</p></header>",
        *_answer(comparison),
        *section("figures", "Figures", figures(drawings)),
        *section("tables", "Tables", tables([*summary_tables(comparison), *detail_tables(comparison)])),
        *section("fairness", "Fairness", _fairness(comparison)),
        *section("checklist", "NAS best-practice checklist", _checklist(comparison)),
        *section("winner", "Take the winner home", _take_home(comparison)),
        *section("reproduce", "How to reproduce", reproduce(units, comparison)),
    ]
    return page(f"{comparison.space} · depth search report", body)


def question(comparison: Comparison) -> str:
    """That the page answers: of as many one-shots and searches as there are."""
    one_shots = comparison.one_shots
    if not one_shots:
        return "which search over depths?"
    if len(one_shots) == len(comparison.methods) > 1:
        return "which network that learns its depth?"
    one = f"{one_shots[0]} run" if len(one_shots) == 1 else "network that learns its depth"
    return f"one {one}, or a search?"


# --- what to do, first ---------------------------------------------------------------------------------------------


def _answer(comparison: Comparison) -> list[str]:
    said = comparison.recommendation
    parts = ['<section id="verdict"><h2>What to do</h2>', f"<p class=headline>{html_text(said.sentence)}</p><dl>"]
    parts += [f"<dt>{word}</dt><dd>{html_text(text)}</dd>" for word, text in said.reasons.items()]
    parts.append("</dl>")
    resolution, floor = comparison.resolution, comparison.floor
    if floor and floor.below:
        parts.append(banner("Below a linear model", " ".join(floor.below)))
    if resolution and not resolution.enough:
        parts.append(banner("Too blunt", resolution.sentence))
    if comparison.fairness:
        rules = ", ".join(item.rule for item in comparison.fairness)
        parts.append(banner("Unfair comparison", f"{rules} differ between methods. Affected verdicts are withheld."))
    if comparison.contamination.found:
        parts.append(banner("Time may be contaminated", f"{'; '.join(comparison.contamination.signs)}."))
    if comparison.missing:
        parts.append(banner("Missing", f"no result yet: {', '.join(comparison.missing)}."))
    needed = comparison.headroom
    rules_first = [(needed.stage, pair) for pair in needed.stage.pairs] if needed else []
    cards = [_card(comparison, stage, pair) for stage, pair in rules_first]
    cards += [_card(comparison, comparison.search, pair) for pair in comparison.search.pairs]
    parts += ["<div class=cards>", *cards, "</div>"] if cards else []
    parts += tables([verdict_table(comparison)]) if comparison.search.pairs else []
    parts += _folded("Each verdict in a sentence", "notes", comparison.sentences)
    found = (family(comparison.search), how_verdicts_follow(comparison.search)) if comparison.search.pairs else ()
    promise = [*found, comparison.margins_said, needed.sentence if needed else ""]
    parts += _folded("How verdicts are reached", "notes", [each for each in promise if each])
    sharp = [resolution.sentence[0].upper() + resolution.sentence[1:]] if resolution and resolution.enough else []
    parts += _folded("Before you believe it", "notes", [*sharp, *comparison.notes])
    return [*parts, "</section>"]


def _folded(title: str, kind: str, lines: Sequence[str]) -> list[str]:
    """What opens with a click; a browser prints it open."""
    if not lines:
        return []
    items = "".join(f"<li>{html_text(line)}</li>" for line in lines)
    return [f"<details><summary>{html_text(title)}</summary><ul class={kind}>{items}</ul></details>"]


def _card(comparison: Comparison, stage: Stage, pair: Pair) -> str:
    """One number, what it is of, and a word for each quality."""
    lead = leading_cost(comparison.contamination)
    said = {m.title: pair.verdicts[m.key] for m in QUALITIES if m.key in pair.verdicts}
    said |= {SIZE.title: pair.size} if pair.size else {}
    badges = "".join(
        f'<span class="badge {badge(verdict.outcome)}">{html_text(title)}: {html_text(shown(verdict.outcome))}</span>'
        for title, verdict in said.items()
    )
    if pair.withheld:
        badges = '<span class="badge open">withheld</span>'
    colour = comparison.colours.get(stage.name_of(pair), NO_METHOD)
    number, words = big_number(pair.cost_ratios.get(lead.key), f"{pair.baseline}'s {SHORT_COST[lead.key]}")
    return (
        f'<article class="card{" withheld" if pair.withheld else ""}" style="--method:{colour}">'
        f"<h3>{html_text(pair.method)}</h3><p class=big>{number}</p><p class=what>{html_text(words)}</p>"
        f"<p class=badges>{badges}</p>{_at_equal_quality(comparison, pair)}</article>"
    )


NO_METHOD = "#8c959f"  # a rule that does not search
SHORT_COST = {DEVICE_SECONDS.key: "device time", TFLOP.key: "total TFLOP"}


def big_number(found: Interval | None, whose: str) -> tuple[str, str]:
    """The share of the baseline's cost, and three words; never a number for what is not known."""
    if found is None:
        return "?", "cost not recorded"
    return f"{ratio(1 / found.mean)}×", whose


def _at_equal_quality(comparison: Comparison, pair: Pair) -> str:
    """The fair counterweight: what an oracle that stops the search at the right moment would have spent."""
    if pair.method != comparison.reference:
        return ""
    text = html_text(_oracle(comparison, pair.baseline))
    return f"<details><summary>If {html_text(pair.baseline)} knew when to stop</summary>{text}</details>"


def _oracle(comparison: Comparison, baseline: str) -> str:
    found = next(item for item in comparison.equal_quality if item.baseline == baseline)
    reached = found.baseline_reaches
    if found.speed_up is not None:
        return (
            f"Stopped by an oracle once it is as good, {baseline} would need {ratio_with_ends(found.speed_up)} of "
            f"{comparison.reference}'s device time."
        )
    of = counted(len(reached.seeds), "seed")
    return f"{baseline} got as good as {comparison.reference} on {reached.count} of {of}."


# --- the rest -----------------------------------------------------------------------------------------------------


def _fairness(comparison: Comparison) -> Iterable[str]:
    if not comparison.fairness:
        yield (
            "<p>The program compared the records and found no difference between the methods in: split, settings, "
            "schedule, stopping rule, precision, device and share, CPUs and GPUs per trial, co-resident trials, "
            "machine, versions, test set, cost rule of the output block.</p>"
        )
        return
    yield "<p>These should be equal but are not. Every verdict between methods that differ is withheld.</p><dl>"
    for item in comparison.fairness:
        yield f"<dt>{html_text(item.rule)}</dt><dd>{html_text(item.detail)}</dd>"
    yield "</dl>"


def _checklist(comparison: Comparison) -> Iterable[str]:
    marks = {"yes": ("✓", "good"), "partly": ("~", "open"), "no": ("✗", "bad")}
    yield "<p>After Lindauer &amp; Hutter (2020), answered by the program from the records.</p><ul class=checklist>"
    for item in comparison.checklist:
        mark, kind = marks[item.answer]
        yield (
            f'<li><span class="badge {kind}"><span aria-hidden="true">{mark}</span> {item.answer}</span>'
            f"<span><strong>{html_text(item.question)}</strong><br>{html_text(item.evidence)}</span></li>"
        )
    yield "</ul>"


def _take_home(comparison: Comparison) -> Iterable[str]:
    """The lines that load the winner: with this package, and without it."""
    winner, space = comparison.winner, comparison.space
    whose = f"<strong>A seed of {html_text(winner.method)} (seed {winner.seed})</strong>: {html_text(winner.why)}"
    yield f"<p>{whose}. It takes rows as they are in the data set; normalisation and class names are inside.</p>"
    yield _code("import harness", f'model = harness.load_results("{space}").winner()', "model.predict_names(rows)")
    yield "<p>From MLflow, where this package need not be installed; the address is that of your results:</p>"
    yield _code(
        "import mlflow",
        'mlflow.set_tracking_uri("sqlite:///results/mlflow.db")',
        f'mlflow.pyfunc.load_model("models:/{model_name(space)}@winner").predict(rows)  # a probability per class',
    )


def _code(*lines: str) -> str:
    return f"<pre><code>{html_text(chr(10).join(lines))}</code></pre>"
