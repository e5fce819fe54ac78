"""Several workers under one supervisor: started, watched, replaced, and shown as one."""
