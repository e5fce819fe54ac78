"""Handlers deployed with a model inside TorchServe. They import nothing of this package."""
