"""Tests on engines that `make check-engines` installs: Ray, Spark, Kafka brokers, an S3 server."""
