"""Spans and metrics of runs and of the gateway, by OpenTelemetry's conventions. OpenTelemetry itself is imported on use."""
