"""One module per family of figures, whose `measure(bench)` yields rows."""
