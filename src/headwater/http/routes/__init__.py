"""The routes of the API, by subject; each module is a tag of the OpenAPI document."""
