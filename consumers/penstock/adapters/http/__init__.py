"""Our own HTTP/1.1 connections, which authorities TLS trusts, and what running workers say."""
