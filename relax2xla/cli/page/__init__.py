"""Programs as pictures: the graph of a module, its layout, and the files made of them."""
