"""Video and audio."""
