"""The only folder that touches what aiokafka keeps to itself."""
