"""What the benchmarks share: data, workloads, a stopwatch for process trees, tables and plots, and the peers."""
