# The training image: every job but the reward service. Build it from the repository's root (docs/operations/kubernetes.md):
#   CUDA_IMAGE   docker.io/nvidia/cuda:13.0.2-devel-ubuntu22.04@sha256:...   no default: look its digest up, do not trust ours
#   secret pip-config   a pip.conf, where the package index is not the public one; it does not stay in the image
ARG CUDA_IMAGE

FROM ${CUDA_IMAGE} AS builder
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_PYTHON_INSTALL_DIR=/opt/python UV_NO_CACHE=1
# The base is pinned by digest, its distribution's packages are security updates of it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ libnuma1 python3-pip \
    && rm -rf /var/lib/apt/lists/*
# uv verifies the interpreter it downloads against a checksum of its own.
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    python3 -m pip install uv==0.13.9 \
    && uv python install 3.11 \
    && uv venv --seed --python 3.11 /opt/venv
ENV PATH=/opt/venv/bin:$PATH CUDA_HOME=/usr/local/cuda
WORKDIR /build
COPY requirements/gpu.txt requirements/
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps -r requirements/gpu.txt \
    && pip install --no-deps --use-pep517 deepspeed==0.19.6
# The longest step, hours on few cores: no wheel fits this torch. 8.0 is A100, 9.0 is H100 and H200.
ARG MAX_JOBS=8
ENV TORCH_CUDA_ARCH_LIST="8.0;9.0" FLASH_ATTN_CUDA_ARCHS="80;90"
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    MAX_JOBS=${MAX_JOBS} FLASH_ATTENTION_FORCE_BUILD=TRUE \
    pip install --no-deps --no-build-isolation flash-attn==2.8.3
COPY pyproject.toml setup.py README.md LICENSE ./
COPY restrain_openrlhf restrain_openrlhf
COPY test_time test_time
COPY configs configs
COPY k8s k8s
RUN --mount=type=secret,id=pip-config,target=/etc/pip.conf \
    pip install --no-deps . && pip freeze > /opt/venv/pip-freeze.txt

# The same base: DeepSpeed, FlashInfer and Triton compile kernels while they run, which needs nvcc and a compiler.
FROM ${CUDA_IMAGE}
LABEL org.opencontainers.image.title="restrain-openrlhf training" \
      org.opencontainers.image.licenses="Apache-2.0" \
      io.ray.version="2.55.0"
ENV DEBIAN_FRONTEND=noninteractive PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH CUDA_HOME=/usr/local/cuda
# wget is for the health checks of KubeRay before 1.7, which call it in the container.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ ibverbs-providers libibverbs1 libnuma1 wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 restrain \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /cache/home restrain
COPY --from=builder /opt/python /opt/python
COPY --from=builder /opt/venv /opt/venv
WORKDIR /mnt/work
USER 10001:10001
CMD ["restrain", "--help"]
