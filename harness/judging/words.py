"""The words of a verdict: one table. Terminal, JSON, report, MLflow, frames, studies and docs/verdicts.md use it.

A verdict compares a method with a *baseline* in one measure, over seeds that both were run on. It says on which side of
two values the difference of the typical seed lies: 0, and the margin of what the user would give up. The value in JSON
is the word that is shown, but for the few that have a plainer one.
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

Plain = Literal[
    "better", "as good", "slightly worse", "worse", "worse beyond the margin", "cheaper", "dearer", "smaller", "larger"
]  # asserted of the typical seed and of the mean
OnMostSeeds = Literal[
    "better on most seeds",
    "as good on most seeds",
    "slightly worse on most seeds",
    "worse on most seeds",
    "worse beyond the margin on most seeds",
    "cheaper on most seeds",
    "dearer on most seeds",
    "smaller on most seeds",
    "larger on most seeds",
]  # of the typical seed alone
Open = Literal["undecided", "too few seeds"]
Outcome = Plain | OnMostSeeds | Open
Kind = Literal["good", "open", "bad", "none"]  # what a view colours it by

ON_MOST_SEEDS: Final = " on most seeds"
WITHHELD: Final = "withheld"
UNANSWERED: Final = frozenset({"undecided", "too few seeds"})


@dataclass(frozen=True)
class Word:
    """A row of the table."""

    value: str  # in JSON, CSV and frames
    asserts: str  # what is true of the typical seed when it is said
    kind: Kind
    shown: str = ""  # where a plainer word than `value` is shown

    @property
    def text(self) -> str:
        return self.shown or self.value


WORDS: Final = {
    word.value: word
    for word in (
        Word("better", "The typical seed is better than the baseline's.", "good"),
        Word(
            "as good",
            "The typical seed is less than the margin worse, if it is worse at all; which of the two is better is "
            "undecided.",
            "good",
        ),
        Word("slightly worse", "The typical seed is worse, by less than the margin.", "open"),
        Word("worse", "The typical seed is worse; whether by more than the margin is open.", "bad"),
        Word("worse beyond the margin", "The typical seed is worse by more than the margin.", "bad"),
        Word("cheaper", "The typical seed costs less.", "good"),
        Word("dearer", "The typical seed costs more.", "bad", shown="more expensive"),
        Word("smaller", "The network of the typical seed is smaller.", "good"),
        Word("larger", "The network of the typical seed is larger.", "bad"),
        Word("undecided", "Nothing: these seeds do not tell.", "open"),
        Word("too few seeds", "Nothing: with so few seeds no verdict of this table could be given.", "none"),
        Word(WITHHELD, "Nothing: the two were not compared on equal terms.", "none"),
    )
}

# What else is said of verdicts: the everyday word → what it means.
TERMS: Final = {
    "baseline": "What a method is judged against: the method that trains every depth, or, where you name a reference, "
    "each other method.",
    "typical seed": "The median over seeds: half of all seeds are above it, half below.",
    "on most seeds": "Follows a word when it is certain of the typical seed and not of the mean: a few seeds are so "
    "different that they decide the mean. Look at how often the method fails.",
    "matches": "A method matches the baseline when every quality is better, as good or slightly worse, none of them "
    "only on most seeds.",
    "failure": "A seed on which a method is worse than the baseline by the margin or more.",
    "margin": "How much worse a method may be and still count as good; set in the search space.",
    "interim analysis": "A comparison at a number of seeds fixed in advance, after which more seeds may follow. "
    "Verdicts and intervals are adjusted for how many of them there are.",
    "decided": "A verdict that is not undecided, not only on most seeds and not withheld.",
    "winner": "The network to take home: a seed of the cheapest method that matches the baseline, the one that is best "
    "on validation. That says little about how it will do on new rows.",
}


_BY_TEXT: Final = {word.text: word for word in WORDS.values()}


def is_plain(outcome: str) -> bool:
    """Whether it is said of the typical seed and of the mean."""
    return outcome in get_args(Plain)


def plain_part(outcome: str) -> str:
    return outcome.removesuffix(ON_MOST_SEEDS)


def shown(outcome: str) -> str:
    """The word as people read it."""
    base = plain_part(outcome)
    return WORDS[base].text + outcome.removeprefix(base)


def kind_of(outcome: str) -> Kind:
    """By what a word is coloured, JSON's or the one shown; what holds only on most seeds is no plain good news."""
    base = plain_part(outcome)
    word = WORDS.get(base) or _BY_TEXT.get(base)
    if word is None:
        return "none"
    return "open" if base != outcome and word.kind == "good" else word.kind


def table() -> list[str]:
    """The table of docs/verdicts.md."""
    rows = [f"| {word.text} | `{word.value}` | {word.asserts} |" for word in WORDS.values()]
    return ["| verdict | in JSON | what it asserts |", "| --- | --- | --- |", *rows]


def terms() -> list[str]:
    return [f"- **{term}**: {meaning}" for term, meaning in TERMS.items()]
