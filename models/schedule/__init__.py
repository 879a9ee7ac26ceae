"""Topologies, schedules, bounds, checker, scheduler and network model (MultiTree, EFLOPS)."""
