"""May a service be asked again, and when? Does it, or the worker, keep up?"""
