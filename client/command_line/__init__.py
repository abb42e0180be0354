"""The command line of the client: what it reads, asks and writes."""
