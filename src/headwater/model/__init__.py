"""The frozen types that store, client and servers share; they import only core and errors."""
