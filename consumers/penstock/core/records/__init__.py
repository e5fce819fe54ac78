"""What is published, and under which name?"""
