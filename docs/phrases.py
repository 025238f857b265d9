"""Find phrases that the project's English avoids, in pages, docstrings, comments, messages and test names.

A phrase is on the list because it has a plain equivalent: "recreated" for "made anew", "is not a" for "is no".
`python docs/phrases.py` prints what it finds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("src", "tests", "bench", "examples", "pipelines", "docs")
SUFFIXES = {".py", ".pxd", ".h", ".md"}
# These two name the phrases.
SKIPPED = {"docs/phrases.py", "tests/test_phrases.py"}

PHRASES = {
    "anew": "again; recreated, reopened, rebuilt",
    "as it stands": "leave it out",
    "be it (a|an|of|in|by|for|from)": "whether",
    "(is|are|was|were|been|be) told": "gets, learns, is reported",
    "for good": "permanently",
    "(has|have|had) it not": "does not have it",
    "heeded": "respected, obeyed",
    "held against": "compared with",
    "in the place of": "instead of, in place of",
    "(lend|lends|lent)": "borrow",
    "(let|lets|letting) go of": "release",
    "(lies|lie|stands|stand) (above|behind|below|beside)": "is after, before, above, next to",
    "nor by that": "split the sentence",
    "(of|to) whom": "name the process or the caller",
    "(he|one|those) who": "the process, the caller",
    "(put|set) aside": "quarantine, keep",
    "(go|goes|went|gone) over": "skip, pass",
    "so also": "also",
    "(speaks|speak) of": "describes, names",
    "stands for itself": "leave it out",
    "there is none": "it does not exist",
    "told (of|apart)": "reported, distinguished",
    "what there is": "name it",
    "who comes": "the next reader, the next caller",
    "whoever": "the process that, a caller that",
}
# "is no record" is "is not a record". "There is no record" and "is no longer" are lawful.
LAWFUL = "(?P<lawful>there )?"
LAWFUL_AFTER = "(?!(longer|more|less|fewer|further|other)(?![A-Za-z]))(?=[A-Za-z])"
PHRASES[f"{LAWFUL}(is|are|was|were) no {LAWFUL_AFTER}"] = "is not a"

# Between two words: a space, a new line of a comment, the underscore of a test's name, or the seam of two strings.
GAP = r"""(?:[\s_]|\#|"\s*f?")+"""


def pattern_of(phrase: str) -> re.Pattern[str]:
    """Return what finds a phrase as whole words, also across lines."""
    end = "" if phrase.endswith(LAWFUL_AFTER) else "(?![A-Za-z])"
    return re.compile(rf"(?<![A-Za-z])(?:{phrase.replace(' ', GAP)}){end}", re.IGNORECASE)


PATTERNS = [(pattern_of(phrase), advice) for phrase, advice in PHRASES.items()]


def files() -> list[Path]:
    """Return every file whose words are checked."""
    found = [*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("*"))]
    return sorted(path for path in found if path.suffix in SUFFIXES and name_of(path) not in SKIPPED)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number of each phrase in a text, and the phrase with its advice."""
    for pattern, advice in PATTERNS:
        for match in pattern.finditer(text):
            if match.groupdict().get("lawful") is None:
                words = " ".join(re.split(GAP, match[0])).strip()
                yield text.count("\n", 0, match.start()) + 1, f'"{words}": {advice}'


def check() -> Iterator[str]:
    """Yield every phrase of the project's files, with its place and its advice."""
    for path in files():
        yield from (f"{name_of(path)}:{line}: {phrase}" for line, phrase in sorted(faults(path.read_text())))


if __name__ == "__main__":
    print("\n".join(check()))
