"""The summary as three plots: payments over time, amounts by merchant, bad records by reason."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from pipelines.payments.summary import Summary, rupees

INK, QUIET, GRID = "#1f2933", "#6b7785", "#e4e7eb"
BLUE, PALE, ORANGE, RED = "#2f6db5", "#b9cfe8", "#e08a1e", "#c2383a"
TOP_MERCHANTS = 15


def write_plots(summary: Summary, directory: str | Path) -> list[Path]:
    """Write the plots as PNG files to a directory and return their paths."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    figures = {
        "payments_over_time.png": over_time(summary),
        "amounts_by_merchant.png": by_merchant(summary),
        "bad_records_by_reason.png": by_reason(summary),
    }
    for name, figure in figures.items():
        figure.savefig(directory / name, dpi=120, facecolor="white")
    return [directory / name for name in figures]


def over_time(summary: Summary) -> Figure:
    """Draw the payments of each window, those that are late or in open windows, and the alerts."""
    figure, axes = _figure("Payments over time", height=4.2, subtitle="times are UTC")
    if not summary.intervals:
        return figure
    starts = [_days(interval.start) for interval in summary.intervals]
    width = min((later - start for start, later in pairwise(starts)), default=1 / 288)
    last_closed = max((interval.start for interval in summary.intervals if interval.counted), default=None)
    counted, late, still_open = [], [], []
    for interval in summary.intervals:
        is_closed = last_closed is not None and interval.start <= last_closed
        counted.append(interval.counted)
        late.append(interval.payments - interval.counted if is_closed else 0)
        still_open.append(0 if is_closed else interval.payments)
    floor = [0] * len(starts)
    for label, colour, heights in (
        ("in closed windows", BLUE, counted),
        ("too late for their window", ORANGE, late),
        ("window still open", PALE, still_open),
    ):
        axes.bar(starts, heights, bottom=floor, width=width * 0.92, align="edge", color=colour, label=label)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    _mark_alerts(axes, summary, tops=dict(zip(starts, floor, strict=True)), width=width)
    locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("payments a window", color=QUIET)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    figure.legend(loc="outside lower center", ncols=5, columnspacing=1.2, handletextpad=0.5, frameon=False, fontsize=9)
    return figure


def _days(at: datetime) -> float:
    """Return a time as matplotlib represents it, in days."""
    return at.timestamp() / 86_400


def _mark_alerts(axes: Axes, summary: Summary, *, tops: dict[float, int], width: float) -> None:
    """Mark each window with an alert; marks for many payments are large and have the merchant's name."""
    highest = max(tops.values())
    for rule, marker, size, colour in (("large-payment", "d", 22, QUIET), ("many-payments", "v", 60, RED)):
        marked = {_days(alert.window_start): alert for alert in summary.alerts if alert.rule == rule}
        marked = {start: alert for start, alert in marked.items() if start in tops}
        if not marked:
            continue
        middles = [start + width / 2 for start in marked]
        heights = [tops[start] + highest * 0.03 for start in marked]
        axes.scatter(middles, heights, marker=marker, s=size, color=colour, label=f"alert: {rule}", zorder=3)
        if rule == "many-payments":
            for middle, height, alert in zip(middles, heights, marked.values(), strict=True):
                axes.annotate(
                    alert.merchant, (middle, height), xytext=(0, 7), textcoords="offset points", ha="center", color=RED
                )
    axes.set_ylim(0, highest * 1.18)


def by_merchant(summary: Summary, *, top: int = TOP_MERCHANTS) -> Figure:
    """Draw the amounts and numbers of payments of the largest merchants."""
    shown = summary.merchants[:top]
    figure, axes = _figure(
        "Amounts by merchant", height=1.1 + 0.32 * max(3, len(shown)), subtitle=f"the {len(shown)} largest"
    )
    _bars(
        axes,
        {total.merchant: total.amount_paise for total in shown},
        notes=[f"{rupees(total.amount_paise)} in {total.payments:,} payments" for total in shown],
        room=1.45,
        colour=BLUE,
    )
    return figure


def by_reason(summary: Summary) -> Figure:
    """Draw the number of bad records by reason."""
    count = sum(summary.bad.values())
    share = f"{count:,} of {summary.records:,}, {count / max(1, summary.records):.1%}"
    figure, axes = _figure("Bad records by reason", height=1.1 + 0.32 * max(3, len(summary.bad)), subtitle=share)
    _bars(axes, summary.bad, notes=[f"{bad:,}" for bad in summary.bad.values()], room=1.1, colour=RED)
    return figure


def _bars(axes: Axes, amounts: dict[str, int], *, notes: list[str], room: float, colour: str) -> None:
    if not amounts:
        axes.text(0.5, 0.5, "none", ha="center", va="center", color=QUIET, transform=axes.transAxes)
        axes.set_axis_off()
        return
    bars = axes.barh(list(amounts), list(amounts.values()), color=colour, height=0.72)
    axes.bar_label(bars, labels=notes, padding=5, color=INK, fontsize=9)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlim(0, max(amounts.values()) * room)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _figure(title: str, *, height: float, subtitle: str = "") -> tuple[Figure, Axes]:
    # pyplot would keep the figure and could open a window.
    figure = Figure(figsize=(9, height), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=12)
    if subtitle:
        axes.set_title(subtitle, loc="right", fontsize=9.5, color=QUIET, pad=12)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=QUIET, labelsize=9.5)
    axes.set_axisbelow(True)
    return figure, axes
