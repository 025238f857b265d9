"""The names and the limits that the pipeline goes by. Who adapts it begins here."""

from __future__ import annotations

from dataclasses import dataclass

PAYMENTS = "payments"


@dataclass(frozen=True, kw_only=True)
class Topics:
    """The topics of the store that the pipeline reads and writes."""

    payments: str = PAYMENTS
    dead_letters: str = "payments-dead-letters"
    alerts: str = "payments-alerts"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What counts as a payment, how long the pipeline waits for late ones, and what is worth an alert."""

    currencies: tuple[str, ...] = ("INR",)
    # One hostile amount must not make the sum of a window overflow: the bound leaves room for nine million such.
    max_amount_paise: int = 1_000_000_000_000
    # A single clock that runs ahead would push the watermark past everybody else's payments.
    max_ahead_s: int = 60
    # Older ones are dead letters. A duplicate cannot be told from them once its first copy is forgotten.
    max_age_s: int = 3600
    # How long a payment's id is remembered. Twice the age: partitions are not read at exactly the same pace.
    remember_s: int = 7200
    window_s: int = 300
    # How long a window waits for payments that are late.
    lateness_s: int = 600
    # Alerts: a merchant with this many payments in one window, or one payment as large as this.
    many_payments: int = 2000
    large_payment_paise: int = 30_000_000
