"""Fakes that are part of the product: scripted models and transports, a fake clock, conformance suites."""
