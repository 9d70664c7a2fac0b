"""`make fuzz`: send requests that Schemathesis derives from the OpenAPI document to a server."""
