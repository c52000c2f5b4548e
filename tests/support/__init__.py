"""What tests share: data sets, stores, networks, clusters and object stores of their own."""
