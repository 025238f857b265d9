"""The payments pipeline: from a topic of payments to clean tables, merchant windows, alerts and dead letters.

`rules` says what a good payment is and when to alert, `transformations` are the steps as functions of DataFrames,
`run` starts them as streams, `summary` and `plots` show the result, `generate` makes payments to try it on.
"""
