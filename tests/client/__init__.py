"""Tests of the client, against a real server."""
