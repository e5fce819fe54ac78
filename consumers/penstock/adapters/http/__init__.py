"""Our own HTTP/1.1 connections, and which authorities TLS trusts."""
