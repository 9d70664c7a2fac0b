"""Tests on Ray, Spark, Kafka, S3 and a REST catalog, which `make check-engines` runs."""
