"""Autoscaling of pods: the chart's rule beside the HPA on CPU, by simulation."""
