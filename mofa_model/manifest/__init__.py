"""Manifests"""
