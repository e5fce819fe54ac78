"""May a service be asked again, and when?"""
