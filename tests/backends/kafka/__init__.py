"""Tests of events in Kafka."""
