"""What other fields compute: science, graphs, finance, tables."""
