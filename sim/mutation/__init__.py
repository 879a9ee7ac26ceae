"""Mutation campaigns: can the benches fail?"""
