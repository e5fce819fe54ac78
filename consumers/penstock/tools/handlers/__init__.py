"""Handlers that run inside TorchServe, deployed with a model. They import nothing of this
package.
"""
