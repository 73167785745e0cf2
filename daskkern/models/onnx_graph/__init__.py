"""Models as ONNX graphs, for runtimes that know neither Python nor daskkern."""

from daskkern.models.onnx_graph.export import onnx_bytes, write_onnx

__all__ = ["onnx_bytes", "write_onnx"]
