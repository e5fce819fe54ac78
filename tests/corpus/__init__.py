"""Bad inputs, each with its answer. A crash that was found somewhere becomes a case here."""
