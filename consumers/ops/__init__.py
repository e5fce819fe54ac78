"""What an operator asks for: health page, judge, announcing objects, topics, processes."""
