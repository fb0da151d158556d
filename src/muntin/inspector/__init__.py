"""The inspector: a local, read-only web page over the reports a store keeps."""
