"""Random inputs, all from seeds, against every reader and every way from a model to values.

``python -m tests.fuzz`` (or ``make fuzz``) runs them. A target (``target.py``) makes an input from
a random generator and tries it; ``engine.py`` gives each input to a worker process with limits on
memory and time, and sorts what became of it. Targets of files are in ``programs.py``,
``packages.py``, ``arrays.py`` and ``words.py``, those that compare values in ``onnx_values.py``,
``torch_values.py`` and ``relax_values.py``.

``endurance.py`` is a program of its own: many builds and calls, at once and one by one.
"""
