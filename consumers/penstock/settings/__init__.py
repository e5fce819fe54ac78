"""The one translator: from the configuration to one frozen value for each part.

Rule: nothing below a setting's translator sees the configuration."""
