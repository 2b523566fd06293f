"""How a layer serves: its description, what its calls may be, its binding, its torch op. Import its
modules; modules of torch are humming/linear.py."""
