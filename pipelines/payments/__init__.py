"""The payments pipeline: reads a topic of payments and writes tables, merchant windows, alerts, and dead letters.

`rules` has the limits of a good payment and of alerts, `transformations` the steps as functions of DataFrames. `run`
starts the steps as streams, `summary` and `plots` show the result, and `generate` writes test payments.
"""
