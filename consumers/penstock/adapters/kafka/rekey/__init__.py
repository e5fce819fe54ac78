"""The way to the topic that is keyed by stream: its reader, and the ends it asks for."""
