"""The interpreter of ONNX graphs, and what converters work with."""
