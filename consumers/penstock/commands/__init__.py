"""The commands: each parses its options, calls one function and prints. That function is in another
package, which is imported only when the command runs. The name of a file names its commands; `run`
also has `rekey` and `scenes`, and `observing` has `watch`, `progress`, `top` and `trace`.
"""
