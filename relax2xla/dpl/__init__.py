"""Rewriting of dataflow blocks, binding by binding."""

from __future__ import annotations

from relax2xla.dpl.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
