"""The running store: wiring, worker loop, batches, scheduler."""
