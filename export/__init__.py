"""From trained weights to a checked ONNX file and a Triton model repository."""
