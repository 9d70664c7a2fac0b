"""Tests of fitting: counting tokens, shortening, choosing, and what it costs."""
