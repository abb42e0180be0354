"""The other ways to serve, each as its users write it; they run in a virtual environment of their own."""
