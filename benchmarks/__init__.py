"""mgrade and its peers, measured side by side: `python -m benchmarks.cpu`, `python -m benchmarks.gpu`."""
