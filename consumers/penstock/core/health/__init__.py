"""May a service be asked again, and when? Does a service or the worker keep up with the load?"""
