"""What every verb that destroys something takes: `--yes`, and `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def consent_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options `--dry-run` and `--yes`."""
    function = click.option("--yes", "-y", "is_agreed", is_flag=True, help="Do it without asking.")(function)
    return dry_run_option(function)


def dry_run_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the option `--dry-run`."""
    return click.option("--dry-run", "is_dry", is_flag=True, help="Only tell what would be done; change nothing.")(
        function
    )
