"""What travels between processes: messages, their encoding, and the sockets."""
