"""The only folder that uses private parts of aiokafka."""
