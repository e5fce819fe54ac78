"""Our own HTTP/1.1 connections, the authorities of TLS, and requests to running workers."""
