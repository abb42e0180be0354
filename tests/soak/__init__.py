"""Half an hour of everything that the service is asked: `python -m tests.soak` says whether its memory grows."""
