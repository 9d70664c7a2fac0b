"""Types that the servers, the client and the command line share: bodies and problems."""
