"""When does a batch close, and what is in it?"""
