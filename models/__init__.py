"""Golden models, in numpy: what each circuit of the same name must do, bit for bit."""
