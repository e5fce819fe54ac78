"""What an operator asks for: the health page, the judge, announcing objects, topics, several processes."""
