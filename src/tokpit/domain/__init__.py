"""The vocabulary: frozen records with units, text hygiene, the metric registry. No I/O."""
