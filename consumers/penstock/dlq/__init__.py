"""Dead letters: listing them, and sending chosen ones back."""
