"""What leaves the program: on the terminal, in a page, in MLflow, in a log. The only place that escapes and redacts.

Names, descriptions, messages of other programs and addresses come from outside. `printable` takes away what a terminal
or a browser would obey instead of show, `html_text` and `markdown_text` what a page would obey, and `redacted` and
`without_secrets` the passwords and tokens of addresses.
"""

import re
from html import escape
from urllib.parse import unquote

# Controls, characters that turn the direction of text around (they can make one name look like another), and halves
# of characters, which no file or terminal takes. A line break and a tab are harmless.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SECRET_KEYS = "token|password|passwd|pwd|pass|secret|api_?key|access_?key|key|auth|sig|signature|credential"
HIDDEN = "***"


def printable(text: str) -> str:
    """Each harmful character as �, so that the length stays and nothing is hidden."""
    return _HARMFUL.sub("�", text)


def html_text(text: str) -> str:
    """For a page: nothing in it is markup."""
    return escape(printable(text))


def markdown_text(text: str) -> str:
    """For a line of Markdown: nothing in it is markup, and a pipe does not end a table's cell."""
    text = re.sub(r"([\\|*_`\[\]])", r"\\\1", printable(text).replace("<", "&lt;"))
    return " ".join(text.split())


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 seed`, `7 seeds`, `1,200 searches`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def code_block(text: str) -> str:
    """A block of Markdown that shows the text as it is; its fence is longer than any in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}\n{printable(text)}\n{fence}"


def one_line(text: str, longest: int = 2000) -> str:
    """A sentence of ours that may hold anything: on one line, without secrets, cut where it never ends."""
    line = without_secrets(printable(" ".join(text.split())))
    return line if len(line) <= longest else f"{line[:longest]} …"


def shown_bytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:,.1f} MiB"


# --- addresses -----------------------------------------------------------------------------------------------------


def redacted(uri: str) -> str:
    """An address without its user name, password, query and fragment, whatever characters a password has in it.

    Everything before the last @ goes: a password may hold @, / and ? although it should not.
    """
    if re.match("sqlite:/{3}", uri):  # a path, which may have an @ of its own
        return re.sub(r"[?].*", f"?{HIDDEN}", uri, flags=re.DOTALL)
    scheme = re.match(r"[A-Za-z][\w+.-]*:/{2,}", uri)
    begin, rest = (scheme.group(), uri[scheme.end() :]) if scheme else ("", uri)
    _, at, host = rest.rpartition("@")
    place, mark, _ = re.match(r"([^?#]*)([?#]?)(.*)", host, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{begin or (f'{HIDDEN}@' if at else '')}{place}{f'{mark}{HIDDEN}' if mark else ''}"


def shown_argument(argument: str) -> str:
    """An argument of a command line, as a page may show it."""
    option, address = re.match(r"(--[\w-]+=|)(.*)", argument, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{option}{redacted(address)}" if "://" in address else without_secrets(argument)


def without_secrets(text: str, *uris: str | None) -> str:
    """A message without the secrets of these addresses, nor of any other address that stands in it."""
    for uri in filter(None, uris):
        text = text.replace(uri, redacted(uri))
        for secret in sorted(_secrets(uri), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
    # Up to the last @ before a space; a path with an @ in an address of the web loses its beginning, which is the
    # lesser evil.
    text = re.sub(r"(?<![\w+.-])((?!sqlite)[A-Za-z][\w+.-]*:/{2,})[^\s\"'<>]*@", r"\1", text)
    return re.sub(rf"(?i)([?&;#]\s*(?:[\w-]*[_-])?(?:{_SECRET_KEYS})=)[^&\s\"'<>)#;]+", rf"\1{HIDDEN}", text)


def _secrets(uri: str) -> set[str]:
    """What must not be seen of an address, as written and decoded; of one or two characters it would be anywhere."""
    if re.match("sqlite:/{3}", uri):
        return set()
    rest = re.sub(r"^[A-Za-z][\w+.-]*:/{2,}", "", uri)
    login, _, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    values = [value for _, value in re.findall(r"[?&;#]([^=&;#]*)=([^&;#]*)", place)]
    parts = re.split(r"[/@?#:]", login)  # where somebody else's parser may cut a password, and show a piece
    found = {login, password or user, *parts, *values}
    return {secret for each in found for secret in (each, unquote(each)) if len(secret) > 2}
