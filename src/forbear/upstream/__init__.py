"""What all calls to one service share: its guards, as users hold them."""
