"""Placement and routing of annealed netlists."""
