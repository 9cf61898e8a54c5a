"""Results of other benchmark tools, read into levels like tokpit's own; one file a tool, one line in `registry`."""
