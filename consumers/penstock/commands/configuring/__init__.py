"""Commands about the configuration alone: shown, checked, begun."""
