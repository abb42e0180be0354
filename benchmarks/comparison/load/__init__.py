"""What puts load on a contender: each generator is a process of its own, which takes jobs from its standard input."""
