"""Model servers: which adapter speaks `model.protocol`, and what all of them share."""
