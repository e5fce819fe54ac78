"""A second model that is asked beside the live one."""
