"""Profiler traces: read Kineto files, replay them, learn from them, price layouts that never ran.

May import: of the product calibrate, output (progress), presets, tables, estimate, schedule,
equations, strategy, spec, units, errors. Imported by: the verb trace.

    reader ──▶ columns ──▶ graph (with links that it infers) ──▶ replay ──▶ path, where each
        second goes
                 │                 ▲                               ▲
                 ▼                 │                               │
              account, picture   ranks (files of one job)   passes ──▶ templates ──▶ rewrite ──▶
                                 predict

Times are seconds since the first event of the file, or of all files after their clocks are aligned.
"""
