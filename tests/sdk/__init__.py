"""Real exceptions of real SDKs, raised against the scripted server of `loopback`, for what must make sense of them."""
