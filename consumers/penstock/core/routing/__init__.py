"""Which model, which store, which stream?"""
