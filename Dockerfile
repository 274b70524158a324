# relax2xla and its command line on CPUs, from this tree:
#
#     docker build -t relax2xla .
#     docker run --rm -v "$PWD:/models" relax2xla inspect model.onnx
#     docker build -t relax2xla --build-arg EXTRAS=onnx,torch .
#
# torch is what the index gives for `pip install torch`; name an index of builds for CPUs by
# --build-arg PIP_EXTRA_INDEX_URL=... for a small image.

FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md constraints.txt ./
COPY relax2xla relax2xla
COPY importers importers
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
# Functions that the library brings in C++ are compiled where they run, for the processor that is there;
# without a compiler XLA's own loops take up to three times as long.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
ARG EXTRAS=onnx
ARG PIP_EXTRA_INDEX_URL
COPY --from=wheel /wheel /wheel
COPY constraints.txt /wheel/
RUN python -m pip install --no-cache-dir -c /wheel/constraints.txt "$(ls /wheel/*.whl)[$EXTRAS]" \
    && rm -r /wheel \
    && useradd --create-home user
USER user
# Programs that were compiled are kept there; mount a volume to keep them longer.
ENV RELAX2XLA_CACHE_DIR=/home/user/.cache/relax2xla
WORKDIR /models
ENTRYPOINT ["relax2xla"]
CMD ["--help"]
