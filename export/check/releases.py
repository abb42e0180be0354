"""What the ONNX Runtime of a Triton release reads.

Sources: triton-inference-server/server, docs/introduction/compatibility.md, "ONNX Runtime Versions"; and
onnxruntime.ai/docs/reference/compatibility.html, "ONNX opset support", which ends with 1.20.
"""

ONNXRUNTIME_OF_TRITON = {
    "24.04": "1.17.3",
    "24.05": "1.18.0",
    "24.06": "1.18.0",
    "24.07": "1.18.1",
    "24.08": "1.18.1",
    "24.09": "1.19.2",
    "24.10": "1.19.2",
    "24.11": "1.19.2",
    "24.12": "1.20.1",
    "25.01": "1.20.1",
    "25.02": "1.20.1",
}
RELEASES = tuple(ONNXRUNTIME_OF_TRITON)
OURS = "24.10"  # of the wheel nvidia-pytriton, and of the README's container

OPSET_AND_IR_OF_ONNXRUNTIME = {"1.17": (20, 9), "1.18": (21, 10), "1.19": (21, 10), "1.20": (21, 10)}


def newest_onnx(triton: str) -> tuple[str, int, int]:
    """Return the release's ONNX Runtime, and the newest opset and IR version that it reads."""
    version = ONNXRUNTIME_OF_TRITON[triton]
    opset, ir_version = OPSET_AND_IR_OF_ONNXRUNTIME[version.rpartition(".")[0]]
    return version, opset, ir_version
