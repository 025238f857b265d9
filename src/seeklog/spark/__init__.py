"""Spark over seeklog: the data source `format("seeklog")`, a tuned local session, and the jobs.

Needs the `spark` extra. Nothing of PySpark is imported until it is used.
"""
