"""Measurements: of the stand-in backend so far."""
