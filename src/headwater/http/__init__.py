"""The HTTP edge: requests are translated to the store's verbs, and answers back."""
