"""Layers with DGL's arguments, parameter names and initialisation: a state dict of DGL's layer
loads. Each takes a `mezzo.Graph` (or a Topology) and runs the operators that the C++ layer runs."""
from mezzo.nn.aggregation import (EdgeConv, EdgeWeightNorm, GatedGraphConv, GINConv, GraphConv,
                                  SAGEConv)
from mezzo.nn.attention import DotGatConv, GATConv, GATv2Conv
from mezzo.nn.propagation import APPNPConv, ChebConv, GCN2Conv, SGConv, TAGConv

__all__ = ["APPNPConv", "ChebConv", "DotGatConv", "EdgeConv", "EdgeWeightNorm", "GATConv",
           "GATv2Conv", "GCN2Conv", "GINConv", "GatedGraphConv", "GraphConv", "SAGEConv", "SGConv",
           "TAGConv"]
