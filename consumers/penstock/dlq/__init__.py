"""Dead letters: listing them, sending chosen ones back, and letting stopped lines go on."""
