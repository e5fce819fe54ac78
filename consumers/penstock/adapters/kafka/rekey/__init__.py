"""The way to the topic that is keyed by stream: its reader, the ends it asks for, transactions."""
