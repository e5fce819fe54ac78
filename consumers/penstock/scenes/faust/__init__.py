"""The engine on Faust."""
