"""GHOST open-set recognition at cluster scale."""

__version__ = "0.1.0"
