"""Mixtures of experts: products of many weights in one call, and the module around them. Nothing is
defined here."""
