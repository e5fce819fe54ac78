"""Do two models say the same?"""
