"""The web UI in a real Chromium, against a real `headwater serve`."""
