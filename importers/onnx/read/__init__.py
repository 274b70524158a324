"""ONNX files: messages, weights beside them, names of dimensions."""
