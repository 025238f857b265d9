"""The payments pipeline as a Spark Declarative Pipelines project, over the same transformations."""
