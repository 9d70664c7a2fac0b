"""Events in a topic of Kafka, from where they are appended to the streams in Redis."""
