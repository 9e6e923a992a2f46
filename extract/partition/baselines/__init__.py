"""Partitions by the papers: TVM's FuseOps, DNNFusion's plan, AGO's clustering."""
