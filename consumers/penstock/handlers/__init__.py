"""Runs inside TorchServe: the handler to deploy with a model. It imports nothing of this
package.
"""
