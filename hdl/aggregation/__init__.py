"""The homomorphic aggregator: slot rule, adders, answers, frames (THC, in the network)."""
