"""The sides of ``bench.streaming``: a server that sends long responses, and clients that read them."""
