"""Tests on Ray, Spark, real Kafka brokers and a real S3 server, which `make check-engines` runs."""
