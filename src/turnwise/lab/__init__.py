"""A scripted provider on loopback that speaks every family and every fault."""
