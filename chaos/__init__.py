"""Breaking the production engine on purpose, and counting what it lost."""
