"""The worker: partitions, batches, schedules, and the versions of features that it runs."""
