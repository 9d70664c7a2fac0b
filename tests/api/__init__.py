"""The bodies that server and client share."""
