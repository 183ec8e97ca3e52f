"""Layers with DGL's arguments, parameter names and initialisation: a state dict of DGL's layer
loads. Each takes a `mezzo.Graph` (or a Topology) and runs the operators that the C++ layer runs.
Unless a layer says more, `feat` is [num_src, in], destinations first, or a pair with [num_dst, in],
and `edge_weight` [E] or [E, 1]."""
from mezzo.nn.aggregation import (EdgeConv, EdgeWeightNorm, GatedGraphConv, GINConv, GraphConv,
                                  SAGEConv)
from mezzo.nn.attention import (AvgPooling, DotGatConv, GATConv, GATv2Conv, GlobalAttentionPooling,
                                JumpingKnowledge, MaxPooling, Set2Set, SumPooling, WeightAndSum)
from mezzo.nn.propagation import APPNPConv, ChebConv, GCN2Conv, SGConv, TAGConv

__all__ = ["APPNPConv", "AvgPooling", "ChebConv", "DotGatConv", "EdgeConv", "EdgeWeightNorm",
           "GATConv", "GATv2Conv", "GCN2Conv", "GINConv", "GatedGraphConv",
           "GlobalAttentionPooling", "GraphConv", "JumpingKnowledge", "MaxPooling", "SAGEConv",
           "SGConv", "Set2Set", "SumPooling", "TAGConv", "WeightAndSum"]
