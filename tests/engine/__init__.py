"""The event engine: what becomes of an event, whatever happens on the way."""
