"""Many small cases in one test: pytest's overhead for a case takes longer than these cases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, cases: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with one case after the other as an argument. A failure names its case.

    Use `pytest.mark.parametrize` if a case takes longer, needs its own fixture, or has a name.
    """
    every = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            for case in every:
                try:
                    test(**arguments, **{name: case})
                except BaseException as error:
                    error.add_note(f"with {name}={case!r}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
