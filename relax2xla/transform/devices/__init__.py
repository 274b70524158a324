"""On which device values are: virtual devices of TVM's programs."""
