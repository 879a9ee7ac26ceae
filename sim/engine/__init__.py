"""Compiled and cocotb engines that run RTL, stimulus, replay."""
